-- The tree of items, the records that reference it, runs of responses, and the search index.
--
-- Every primary key, unique index and foreign key begins with the tenant, so the tables can be partitioned by
-- tenant, on one machine or several. A tenant's number is the first eight bytes of its root's key. There are no
-- sequences: a row is identified by its content. A key of 64 hex digits is stored as two halves of the type uuid,
-- which has 16 bytes: the first half identifies a node and halves the index. A referenced row cannot be deleted.
--
-- In text with arbitrary characters (names, ids) U+0000 and unpaired surrogates are escaped.

CREATE SCHEMA convo;

-- The migrations that ran. This table and the next one belong to the database, not to a tenant.
CREATE TABLE convo.migrations (
    number  integer PRIMARY KEY,
    run_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE convo.secrets (
    name   text COLLATE "C" PRIMARY KEY,
    value  bytea NOT NULL
);

CREATE TABLE convo.tenants (
    tenant  bigint NOT NULL,
    name    text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant)
);

-- body is the item's JSON as it was sent or received, usually compressed with zlib. named is eight bytes of the hash
-- of its own id.
CREATE TABLE convo.items (
    tenant     bigint NOT NULL,
    hash       uuid NOT NULL,
    named      bigint,
    stored_at  double precision NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (tenant, hash)
);

ALTER TABLE convo.items ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE INDEX items_by_name ON convo.items (tenant, named) WHERE named IS NOT NULL;

-- A tenant's root has no parent. Where an item was erased, item is null and erased keeps its id.
CREATE TABLE convo.nodes (
    tenant  bigint NOT NULL,
    id      uuid NOT NULL,
    rest    uuid NOT NULL,
    parent  uuid,
    item    uuid,
    depth   integer NOT NULL,
    erased  text,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, parent) REFERENCES convo.nodes (tenant, id),
    FOREIGN KEY (tenant, item) REFERENCES convo.items (tenant, hash)
);

CREATE INDEX nodes_by_parent ON convo.nodes (tenant, parent);
CREATE INDEX nodes_by_item ON convo.nodes (tenant, item);

-- JSON that many links share, by the first half of its hash. conversation is the conversation of a route.
CREATE TABLE convo.repeated (
    tenant        bigint NOT NULL,
    hash          uuid NOT NULL,
    body          text NOT NULL,
    conversation  text COLLATE "C",
    PRIMARY KEY (tenant, hash)
);

CREATE INDEX repeated_by_conversation ON convo.repeated (tenant, conversation) WHERE conversation IS NOT NULL;

-- route is [model, strategy, url, organisation, project, conversation, stored, usage], where usage is
-- the object with 0 for every integer; the column usage has the integers, as JSON without brackets.
-- previous is '' if it is the parent's id. parent and session may be ids without a row.
CREATE TABLE convo.links (
    tenant         bigint NOT NULL,
    created_at     double precision NOT NULL,
    seconds        double precision,
    first_token_s  double precision,
    sent           integer NOT NULL,
    saw            uuid NOT NULL,
    head           uuid NOT NULL,
    route          uuid NOT NULL,
    parameters     uuid,
    id             text COLLATE "C" NOT NULL,
    parent         text COLLATE "C",
    session        text COLLATE "C",
    status         text NOT NULL,
    previous       text,
    usage          text,
    error          text,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, saw) REFERENCES convo.nodes (tenant, id),
    FOREIGN KEY (tenant, head) REFERENCES convo.nodes (tenant, id),
    FOREIGN KEY (tenant, route) REFERENCES convo.repeated (tenant, hash),
    FOREIGN KEY (tenant, parameters) REFERENCES convo.repeated (tenant, hash)
);

CREATE INDEX links_by_parent ON convo.links (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX links_by_session ON convo.links (tenant, session) WHERE session IS NOT NULL;
CREATE INDEX links_by_saw ON convo.links (tenant, saw);
CREATE INDEX links_by_head ON convo.links (tenant, head);
CREATE INDEX links_by_route ON convo.links (tenant, route);
CREATE INDEX links_by_parameters ON convo.links (tenant, parameters) WHERE parameters IS NOT NULL;

-- record has the fields that no query uses, as JSON.
CREATE TABLE convo.sessions (
    tenant   bigint NOT NULL,
    used_at  double precision NOT NULL,
    head     uuid NOT NULL,
    mark     uuid NOT NULL,
    written  uuid,
    id       text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    link     text COLLATE "C",
    record   text NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, head) REFERENCES convo.nodes (tenant, id),
    FOREIGN KEY (tenant, mark) REFERENCES convo.nodes (tenant, id),
    FOREIGN KEY (tenant, written) REFERENCES convo.nodes (tenant, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE UNIQUE INDEX sessions_by_name ON convo.sessions (tenant, name);
CREATE INDEX sessions_by_head ON convo.sessions (tenant, head);
CREATE INDEX sessions_by_mark ON convo.sessions (tenant, mark);
CREATE INDEX sessions_by_written ON convo.sessions (tenant, written) WHERE written IS NOT NULL;

-- Removed sessions with links that other sessions continue.
CREATE TABLE convo.removed (
    tenant   bigint NOT NULL,
    session  text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, session)
);

CREATE TABLE convo.conversations (
    tenant      bigint NOT NULL,
    created_at  double precision NOT NULL,
    head        uuid NOT NULL,
    id          text COLLATE "C" NOT NULL,
    metadata    text NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, head) REFERENCES convo.nodes (tenant, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX conversations_by_head ON convo.conversations (tenant, head);

-- The ids that a conversation assigned to items without an id of their own.
CREATE TABLE convo.members (
    tenant        bigint NOT NULL,
    named         bigint NOT NULL,
    node          uuid NOT NULL,
    conversation  text COLLATE "C" NOT NULL,
    id            text NOT NULL,
    PRIMARY KEY (tenant, node, conversation),
    FOREIGN KEY (tenant, node) REFERENCES convo.nodes (tenant, id),
    FOREIGN KEY (tenant, conversation) REFERENCES convo.conversations (tenant, id)
);

CREATE INDEX members_by_name ON convo.members (tenant, named);

-- A run is open while ended_at is null; last is the sequence number of its last event, -1 before the first.
CREATE TABLE convo.runs (
    tenant    bigint NOT NULL,
    last      bigint NOT NULL DEFAULT -1,
    ended_at  double precision,
    id        text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, id) REFERENCES convo.links (tenant, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX runs_open ON convo.runs (tenant, id) WHERE ended_at IS NULL;
CREATE INDEX runs_by_end ON convo.runs (ended_at) WHERE ended_at IS NOT NULL;

-- One batch of events, as a JSON list; last is the sequence number of the last of them.
CREATE TABLE convo.events (
    tenant  bigint NOT NULL,
    last    bigint NOT NULL,
    many    integer NOT NULL,
    run     text COLLATE "C" NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (tenant, run, last),
    FOREIGN KEY (tenant, run) REFERENCES convo.runs (tenant, id)
);

CREATE TABLE convo.leases (
    tenant      bigint NOT NULL,
    expires_at  double precision NOT NULL,
    name        text COLLATE "C" NOT NULL,
    holder      text NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The search index: the hashes of an item's terms, salted by tenant, and the length of all its terms.
CREATE TABLE convo.words (
    tenant  bigint NOT NULL,
    item    uuid NOT NULL,
    length  integer NOT NULL,
    terms   integer[] NOT NULL,
    PRIMARY KEY (tenant, item),
    FOREIGN KEY (tenant, item) REFERENCES convo.items (tenant, hash)
);

CREATE INDEX words_by_term ON convo.words USING gin (terms);
