-- The columns by which requests are listed, sorted, filtered and charted. Python writes them with the link. title has
-- the first words of the input's last message, tools a JSON list of the tools that the response calls or the request
-- offers, the tokens are null without usage. A link without a title was written by an older version, or an item of it
-- was erased: its columns are computed before requests are listed.
ALTER TABLE links ADD COLUMN model TEXT;
ALTER TABLE links ADD COLUMN tier TEXT;
ALTER TABLE links ADD COLUMN input_tokens INTEGER;
ALTER TABLE links ADD COLUMN cached_tokens INTEGER;
ALTER TABLE links ADD COLUMN output_tokens INTEGER;
ALTER TABLE links ADD COLUMN written_tokens INTEGER;
ALTER TABLE links ADD COLUMN written_1h_tokens INTEGER;
ALTER TABLE links ADD COLUMN title TEXT;
ALTER TABLE links ADD COLUMN tools TEXT;

CREATE INDEX links_without_title ON links (tenant) WHERE title IS NULL AND saw IS NOT NULL;
CREATE INDEX links_by_time ON links (tenant, created_at);
