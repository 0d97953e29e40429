-- The columns by which requests are listed, sorted, filtered and charted. Python writes them with the link. title has
-- the first words of the input's last message, tools a JSON list of the tools that the response calls or the request
-- offers, the tokens are null without usage. A link without a title was written by an older version, or an item of it
-- was erased: its columns are computed before requests are listed.
ALTER TABLE convo.links
    ADD COLUMN model text COLLATE "C",
    ADD COLUMN tier text COLLATE "C",
    ADD COLUMN input_tokens bigint,
    ADD COLUMN cached_tokens bigint,
    ADD COLUMN output_tokens bigint,
    ADD COLUMN written_tokens bigint,
    ADD COLUMN written_1h_tokens bigint,
    ADD COLUMN title text,
    ADD COLUMN tools text;

CREATE INDEX links_without_title ON convo.links (tenant) WHERE title IS NULL;
CREATE INDEX links_by_time ON convo.links (tenant, created_at);
