-- The bodies of recorded requests, as their clients sent them. sent_body is the last node of a path whose items are the
-- parts of the body; convo/history/request_body.py describes them. It is null for every other request.
ALTER TABLE links ADD COLUMN sent_body INTEGER REFERENCES nodes ON DELETE RESTRICT;

CREATE INDEX links_by_body ON links (sent_body) WHERE sent_body IS NOT NULL;
