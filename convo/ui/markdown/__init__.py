"""An answer in Markdown, laid out in a terminal while it comes.

What is finished is printed once and scrolls away; only what may still change is drawn again, never
more than a few rows. No step looks at more than the open part, so a long answer costs no more a
line than a short one, and what stands on the screen at the end does not depend on the pieces in
which it came.

In reading order: `spans` (words in a style, and how they fill rows), `parsing` (markdown-it, with
math left alone), `inlines` (words within a line), `code` (colours in code), `tables`, `rendering` (blocks as
rows), `frames` (lists and quotes that go on), `cutting` (what of the text is finished), `reading` (when
that is looked at), `painting` (the terminal), `page` (all of it behind the words of one answer).

Shapes, chosen so that each of them holds without colour and can be read aloud:

* a line break in a paragraph stays one; an empty line stands where the source has one;
* headings keep their `#`; without colour emphasis, strong words and code keep their marks, too;
* code stands at the left edge, to be copied, between a rule with its language and a short one;
* a link is clickable where the terminal can do that, else its address follows in parentheses;
* a table's columns are as wide as its first rows ask for; what is wider later goes on below, in its column;
* reference links, HTML and math are shown as they were written.

Whatever is not finished for too long is taken as it stands: emphasis that is not closed within 500
characters stays a mark, and a line of code longer than 2,000 is broken.
"""
