-- Uploaded files. A content is stored once per tenant, however often it is uploaded.

CREATE TABLE convo.file_contents (
    tenant   bigint NOT NULL,
    hash     bytea NOT NULL,
    content  bytea NOT NULL,
    PRIMARY KEY (tenant, hash)
);

ALTER TABLE convo.file_contents ALTER COLUMN content SET STORAGE EXTERNAL;

-- place increases with each upload. expires_at is null for a file that is kept until it is deleted or pruned.
CREATE TABLE convo.files (
    tenant      bigint NOT NULL,
    place       bigint NOT NULL,
    size        bigint NOT NULL,
    created_at  double precision NOT NULL,
    expires_at  double precision,
    id          text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    purpose     text COLLATE "C" NOT NULL,
    media_type  text COLLATE "C" NOT NULL,
    content     bytea NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, content) REFERENCES convo.file_contents (tenant, hash)
);

CREATE INDEX files_by_place ON convo.files (tenant, place);
CREATE INDEX files_by_content ON convo.files (tenant, content);
CREATE INDEX files_by_expiry ON convo.files (expires_at) WHERE expires_at IS NOT NULL;
