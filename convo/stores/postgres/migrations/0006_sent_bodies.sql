-- The bodies of recorded requests, as their clients sent them. sent_body is the last node of a path whose items are the
-- parts of the body; convo/history/request_body.py describes them. It is null for every other request.
ALTER TABLE convo.links ADD COLUMN sent_body uuid;
ALTER TABLE convo.links ADD FOREIGN KEY (tenant, sent_body) REFERENCES convo.nodes (tenant, id);

CREATE INDEX links_by_body ON convo.links (tenant, sent_body) WHERE sent_body IS NOT NULL;
