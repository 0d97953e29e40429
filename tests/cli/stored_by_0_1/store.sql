PRAGMA application_id = 1668247158;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE VIRTUAL TABLE words USING fts5 (terms, content = '', tokenize = 'ascii');
DELETE FROM words_config;
DELETE FROM words_data;
DELETE FROM words_docsize;
DELETE FROM words_idx;
CREATE TABLE agent_calls (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n           INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL REFERENCES agent_runs ON DELETE RESTRICT,
    id          TEXT NOT NULL,
    started_at  REAL NOT NULL,
    output      TEXT
) STRICT;
CREATE TABLE agent_documents (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    run     INTEGER PRIMARY KEY REFERENCES agent_runs ON DELETE RESTRICT,
    body    TEXT NOT NULL
) STRICT;
INSERT INTO "agent_documents" VALUES(1,1,'{"version":1,"agent":"desk","limits":{"max_turns":10,"parallel":8},"phase":"PAUSED","turn":1,"batch":[{"item":{"type":"function_call","id":"fc_8522dc96671912a1a626f7a573d5f3da","call_id":"c1","name":"refund","arguments":"{\"order\": \"A1\", \"cents\": 500}","status":"completed"},"id":"c1","stage":"WAITING","lookup":["bare","refund"],"tool":"h1:f62909267bfb2e684124b8d674b84a4e186dc6b9a9bc57ca36aa0644263b81e4","to":null,"arguments":"{\"order\": \"A1\", \"cents\": 500}","output":null,"ran":false,"inner":null}],"guards":[],"answered":true,"text":"I ask for approval.","used":{"desk":["refund"]},"always":[],"staged":[],"output":{"value":null},"failure":null,"standing":{"begun":"246e88c930fad1f88f8544c8fb56d493bd5c693fbac17cad1c37538630116dff","turn":"246e88c930fad1f88f8544c8fb56d493bd5c693fbac17cad1c37538630116dff","filtered":null,"view":null},"again":[]}');
INSERT INTO "agent_documents" VALUES(1,2,'{"version":1,"agent":"desk","limits":{"max_turns":10,"parallel":8},"phase":"PAUSED","turn":1,"batch":[{"item":{"type":"function_call","id":"fc_eff5ab953c4df59f21a5bbf0a1249c63","call_id":"c1","name":"refund","arguments":"{\"order\": \"A1\", \"cents\": 500}","status":"completed"},"id":"c1","stage":"WAITING","lookup":["bare","refund"],"tool":"h1:f62909267bfb2e684124b8d674b84a4e186dc6b9a9bc57ca36aa0644263b81e4","to":null,"arguments":"{\"order\": \"A1\", \"cents\": 500}","output":null,"ran":false,"inner":null}],"guards":[],"answered":true,"text":"I ask for approval.","used":{"desk":["refund"]},"always":[],"staged":[],"output":{"value":null},"failure":null,"standing":{"begun":"246e88c930fad1f88f8544c8fb56d493bd5c693fbac17cad1c37538630116dff","turn":"246e88c930fad1f88f8544c8fb56d493bd5c693fbac17cad1c37538630116dff","filtered":null,"view":null},"again":[]}');
CREATE TABLE agent_runs (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    session     INTEGER NOT NULL REFERENCES sessions ON DELETE RESTRICT,
    revision    INTEGER NOT NULL,
    status      TEXT NOT NULL,
    state       TEXT,
    created_at  REAL NOT NULL,
    changed_at  REAL NOT NULL
) STRICT;
INSERT INTO "agent_runs" VALUES(1,1,'run_4e053e5cb8db489bd0fd8be4732489ae',5,2,'paused',NULL,1.79533445248149776465e+09,1.79533445249882721902e+09);
INSERT INTO "agent_runs" VALUES(1,2,'run_2fefdfbc3bc8ee1fb2a13f0c128e911c',6,2,'paused',NULL,1.79533445322200918203e+09,1.79533445323101496695e+09);
CREATE TABLE conversations (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    head        INTEGER NOT NULL REFERENCES nodes ON DELETE RESTRICT,
    length      INTEGER NOT NULL,
    created_at  REAL NOT NULL,
    metadata    TEXT NOT NULL
) STRICT;
INSERT INTO "conversations" VALUES(1,1,'conv_0af7d72c9c84286141693031d0fe3d46',11,7,1.79533444359557509423e+09,'{}');
CREATE TABLE events (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    link    INTEGER NOT NULL REFERENCES runs ON DELETE RESTRICT,
    number  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (link, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE "hashes" (
    tenant  INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    item    INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash)
) STRICT, WITHOUT ROWID;
INSERT INTO "hashes" VALUES(1,X'0FACDA801F3946AF85E42CA1367FD5BE',6);
INSERT INTO "hashes" VALUES(1,X'1284E5F995EFD9594F9FAD313EA02C5A',5);
INSERT INTO "hashes" VALUES(1,X'157BD869F718BB0B6E0E97B09FB152E9',1);
INSERT INTO "hashes" VALUES(1,X'34D988E45D2CEA17B5854901FA459EC4',11);
INSERT INTO "hashes" VALUES(1,X'4CF8B15B47800A5F1809BFCBF9D0F6D0',7);
INSERT INTO "hashes" VALUES(1,X'4F25340766E550458B7137DC2EDB919C',19);
INSERT INTO "hashes" VALUES(1,X'6AD1DB923ACE3168B2A3390155AB3803',13);
INSERT INTO "hashes" VALUES(1,X'708548BB96B2BAED3E03B2A3AB5EBF82',14);
INSERT INTO "hashes" VALUES(1,X'713434D57F92E0C6A6207FCE787EE0ED',10);
INSERT INTO "hashes" VALUES(1,X'90B11DA2956642457A144C416D5A67CA',2);
INSERT INTO "hashes" VALUES(1,X'91CE9C3C4480D865BEAB4C4F3FB55598',9);
INSERT INTO "hashes" VALUES(1,X'AC542A5860CF6181D675B602786DC0D2',18);
INSERT INTO "hashes" VALUES(1,X'B1074F014E67CAC82640B9BF4825B360',20);
INSERT INTO "hashes" VALUES(1,X'C4993708137345E97CAB6749D5961679',8);
INSERT INTO "hashes" VALUES(1,X'C4BA2FD5E60488EDE85F6A43629178EF',17);
INSERT INTO "hashes" VALUES(1,X'C7F951A44146A88BE491E9C9859B3E6A',16);
INSERT INTO "hashes" VALUES(1,X'DCDF3D9D4DC601E65B2D9B96D1E98397',22);
INSERT INTO "hashes" VALUES(1,X'E31BE9321A85B5993A4829DE57EFC343',3);
INSERT INTO "hashes" VALUES(1,X'E424C231935BE39A214AD2FADCE88916',21);
INSERT INTO "hashes" VALUES(1,X'E52C5BEEC4D02EE0369BFE70B5A5EC97',15);
INSERT INTO "hashes" VALUES(1,X'E70225A07F78C66DE788804AE377FC80',12);
INSERT INTO "hashes" VALUES(1,X'F471E1490C2082A3856D75EABB949A8A',4);
INSERT INTO "hashes" VALUES(1,X'FE3605EE129655B9C74217F96C5D9CE5',23);
CREATE TABLE items (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n       INTEGER PRIMARY KEY,
    body    TEXT NOT NULL
) STRICT;
INSERT INTO "items" VALUES(1,1,'{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello."}]}');
INSERT INTO "items" VALUES(1,2,'{"type":"message","id":"msg_8dba0e7212a7235a3157665fcb8a220b","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,3,'{"type":"message","role":"user","content":[{"type":"input_text","text":"How are you?"}]}');
INSERT INTO "items" VALUES(1,4,'{"type":"message","id":"msg_a26cbaf1938d5781f17f0e6ed1f63d2e","role":"assistant","content":[{"type":"output_text","text":"How are you?","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,5,'{"type":"message","id":"msg_9e47822711efa03c2a3524e8bff99fdb","role":"assistant","content":[{"type":"output_text","text":"Short.","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,6,'{"type":"message","id":"msg_d54c515d0c833370ddc054dce2a44569","role":"assistant","content":[{"type":"output_text","text":"First, and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; ","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,7,'{"type":"message","role":"user","content":[{"type":"input_text","text":"Go on."}]}');
INSERT INTO "items" VALUES(1,8,'{"type":"message","id":"msg_732ed0e09ac2fe3501548bff39cc7393","role":"assistant","content":[{"type":"output_text","text":"Then, and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; ","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,9,'{"id":"cmp_3dc3f2cfebb092b7526f4f99d8b5f864","type":"compaction","encrypted_content":"convoseal1:gAAAAABrAqEuw0qT5RLSA_UO5GQ419HW_8SnraC5DvvSz7rWZfsap-LR80PBQqWHx6uKisArc4eTQl7NNmZs6cSTqnymOG2FzNe1W3uScOJhnaxl-IRVDhClSt_6j4eSEAbsjAzYF109NGKRVj9Ngy6McRzZB3a6KMI862i2c75_uiRx2Plif7hCUkqq9zyyvXDIlaiUHWuVmRSxs4IgSjoLIZgf8BJQIc5PmY1UOvXgVHa90CKIXa4OjNYAZ6RRiO2M4Lhlqg2wGvm0TgwylS96wJW0aPQicEEgo4aCWPUdSixPuoYRht89A-ndLe72D2huKKvpx3BracydqQvigKgFCKRxCz19E_0KbqH5-xz6jqQg841GRAeHXN7e5xi14_0P5VCjp1SXc7SgNGQLWlTmk7Ol9BpkDO8VoKDPKFlsJwwqd-LREN7XQ17UHI4P7WUoIRCRg-VR0a0XtcYvdLT1_4KiQ2RsZ0p5gZAu_62cr0uTB2InE_tH4cHF0msMNKOpZ6vFp5V8P5CU0DlpqsBmk_QHvEEeKFoPFB3JEXPI5vAdMu-7lswj4d92ZbtMRCA-riQYKOVRHHaND8NQi3IxdTok6l6j2g=="}');
INSERT INTO "items" VALUES(1,10,'{"type":"message","id":"msg_96b2daa23e22c07eadc3848bc1a0b293","role":"assistant","content":[{"type":"output_text","text":"Short.","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,11,'{"type":"message","id":"msg_4b8cee8bc36b94564e5d7290aca6ea86","role":"assistant","content":[{"type":"output_text","text":"First, and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; ","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,12,'{"type":"message","id":"msg_460f23dbac6e9cd43fdac1f031d52527","role":"assistant","content":[{"type":"output_text","text":"Then, and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; and this goes on for quite a while, as people do when they explain; ","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,13,'{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello."}],"status":"completed"}');
INSERT INTO "items" VALUES(1,14,'{"type":"message","role":"user","content":[{"type":"input_text","text":"How are you?"}],"status":"completed"}');
INSERT INTO "items" VALUES(1,15,'{"type":"message","role":"user","content":[{"type":"input_text","text":"Go on."}],"status":"completed"}');
INSERT INTO "items" VALUES(1,16,'{"type":"compaction","encrypted_content":"convoseal1:gAAAAABrAqExyLAa1RxdHRweEIFFcOU-8Y8YVwZPKaE6NXReYDv5ySNzcpO0F5M_57kmF8CqmXwMHu410VoJkkqIjpHFkN25D-1RIM4X_mEWOkg4BaSj2p7vR7s1VKxb0R6MYAlJeGgNMO0jZG5jn0gbnB5g74v3EgQvFuWpb21UJfd0HbV3SMc="}');
INSERT INTO "items" VALUES(1,17,'{"type":"message","id":"msg_3ab91ead2b970345b060d00d9cdf0858","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,18,'{"type":"message","id":"msg_323cf5548d412c82dd51a42500767775","role":"assistant","content":[{"type":"output_text","text":"How are you?","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,19,'{"type":"message","role":"user","content":[{"type":"input_text","text":"Pay A1 back."}]}');
INSERT INTO "items" VALUES(1,20,'{"type":"message","id":"msg_3705c7a41b06126ffe478580eca169e2","role":"assistant","content":[{"type":"output_text","text":"I ask for approval.","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,21,'{"type":"function_call","id":"fc_8522dc96671912a1a626f7a573d5f3da","call_id":"c1","name":"refund","arguments":"{\"order\": \"A1\", \"cents\": 500}","status":"completed"}');
INSERT INTO "items" VALUES(1,22,'{"type":"message","id":"msg_baf2a58e32c25b70159792628a527a19","role":"assistant","content":[{"type":"output_text","text":"I ask for approval.","annotations":[],"logprobs":[]}],"status":"completed"}');
INSERT INTO "items" VALUES(1,23,'{"type":"function_call","id":"fc_eff5ab953c4df59f21a5bbf0a1249c63","call_id":"c1","name":"refund","arguments":"{\"order\": \"A1\", \"cents\": 500}","status":"completed"}');
CREATE TABLE leases (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    name        TEXT NOT NULL,
    holder      TEXT NOT NULL,
    expires_at  REAL NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE links (
    tenant         INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n              INTEGER PRIMARY KEY,
    id             TEXT NOT NULL,
    parent         INTEGER REFERENCES links ON DELETE RESTRICT,
    session        INTEGER REFERENCES sessions ON DELETE RESTRICT,
    saw            INTEGER REFERENCES nodes ON DELETE RESTRICT,
    head           INTEGER REFERENCES nodes ON DELETE RESTRICT,
    sent           INTEGER,
    route          INTEGER REFERENCES repeated ON DELETE RESTRICT,
    status         TEXT,
    created_at     REAL,
    previous       TEXT,
    seconds        REAL,
    first_token_s  REAL,
    parameters     INTEGER REFERENCES repeated ON DELETE RESTRICT,
    usage          TEXT,
    error          TEXT
) STRICT;
INSERT INTO "links" VALUES(1,1,'resp_45c1c1bb1d9be024aa23984e632e18c2',NULL,1,2,3,1,2,'completed',1.79533444245624923705e+09,NULL,8.96314300007361453026e-03,8.2699739996314747259e-03,1,'3,1,4,0,0,0',NULL);
INSERT INTO "links" VALUES(1,2,'resp_0d15d07a6c3698b6b9df6dd933d507b4',1,1,4,5,3,2,'completed',1.79533444299581456185e+09,NULL,1.15808899954572552815e-03,6.16395000179181806743e-04,1,'7,3,10,0,0,0',NULL);
INSERT INTO "links" VALUES(1,3,'resp_5e56dc47d49dcacd632464ad63844227',NULL,2,2,6,1,3,'completed',1.79533444360351324077e+09,NULL,1.61804120007218443788e-02,1.0175258999879588373e-02,1,'3,0,0,1,0,4',NULL);
INSERT INTO "links" VALUES(1,4,'resp_90032504a003d1ec4d99bb19e50a5664',3,2,7,8,1,3,'completed',1.79533444468370842941e+09,NULL,9.64633900002809241414e-03,8.59431400022003799676e-03,1,'7,0,0,71,0,78',NULL);
INSERT INTO "links" VALUES(1,5,'resp_3a08b0584e285cdb81ac0f29d9a72ff1',4,2,9,10,1,3,'completed',1.7953344454179012775e+09,NULL,1.19088499995996244251e-02,1.09518459994433214887e-02,1,'80,0,0,71,0,151',NULL);
INSERT INTO "links" VALUES(1,6,'resp_09fdab4948202d9b3970351310648f40',5,2,10,11,0,3,'completed',1.79533444593986487389e+09,NULL,9.08396778000678750686e-01,9.08087671999965095892e-01,1,'338,0,0,1,0,339',NULL);
INSERT INTO "links" VALUES(1,7,'resp_1604f473174f00799e248c885848e3e2',NULL,3,2,12,1,4,'completed',1.79533444743487858772e+09,NULL,4.10548299987567588686e-03,3.60324600023886887356e-03,1,'3,0,0,1,0,4',NULL);
INSERT INTO "links" VALUES(1,8,'resp_066be2e7fb79df7d184b1e9c8b45c3e8',7,3,13,14,1,4,'completed',1.79533444794775581352e+09,'',2.44929500058788107708e-03,1.2631790004888898693e-03,1,'7,0,0,71,0,78',NULL);
INSERT INTO "links" VALUES(1,9,'resp_21206b2c2ef3c3ae6597ed72e1516f8a',8,3,15,16,1,4,'completed',1.79533444849171018595e+09,'',2.62975999976333696395e-03,1.2994329999855835922e-03,1,'80,0,0,71,0,151',NULL);
INSERT INTO "links" VALUES(1,10,'try_7ecf364feb76edc55d1dd9e206f95f69',9,3,20,20,0,6,'completed',1.79533444985233926771e+09,NULL,NULL,NULL,5,'338,1,339,0,0,0',NULL);
INSERT INTO "links" VALUES(1,11,'resp_7cfd8e36eabd176a71ef4ee8c69d52df',NULL,4,2,21,1,7,'completed',1.79533445047948694234e+09,NULL,4.84370399954059394076e-03,4.3414769997980329208e-03,NULL,'1,1,2,0,0,0',NULL);
INSERT INTO "links" VALUES(1,12,'resp_29ca35ec7fa4179b00c80dd7de16e7c7',11,4,22,23,3,7,'completed',1.79533445109559440609e+09,NULL,1.46666700038622366264e-03,8.31398000627814326435e-04,NULL,'5,3,8,0,0,0',NULL);
INSERT INTO "links" VALUES(1,13,'resp_bce4335492087d8d5cec91d362a1e5f2',NULL,5,24,26,1,9,'completed',1.79533445249566316601e+09,NULL,3.28464499943947885185e-03,2.09471299967844970524e-03,8,'4,9,13,0,0,0',NULL);
INSERT INTO "links" VALUES(1,14,'resp_2029dd8d38a87ced787fbfa82e5dd6bb',NULL,6,24,28,1,9,'completed',1.79533445322764229771e+09,NULL,7.73388699963106773793e-03,2.1298109995768754743e-03,8,'4,9,13,0,0,0',NULL);
CREATE TABLE members (
    tenant        INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    conversation  INTEGER NOT NULL REFERENCES conversations ON DELETE RESTRICT,
    node          INTEGER NOT NULL REFERENCES nodes ON DELETE RESTRICT,
    id            TEXT NOT NULL,
    PRIMARY KEY (node, conversation)
) STRICT, WITHOUT ROWID;
INSERT INTO "members" VALUES(1,1,2,'msg_c0ffdba0b1c46100bb43252cb3972f4e');
INSERT INTO "members" VALUES(1,1,7,'msg_a2fdaf43e1360aeb2b525624cd17b703');
INSERT INTO "members" VALUES(1,1,9,'msg_0b818cecfd4dbd591a2bf811abc696c6');
CREATE TABLE names (
    tenant  INTEGER NOT NULL,
    hash    INTEGER NOT NULL,
    n       INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash, n)
) STRICT, WITHOUT ROWID;
INSERT INTO "names" VALUES(1,-2052943817,1);
INSERT INTO "names" VALUES(1,-1551169111,9);
INSERT INTO "names" VALUES(1,-1384086797,7);
INSERT INTO "names" VALUES(1,-1179832483,4);
INSERT INTO "names" VALUES(1,-1044241785,3);
INSERT INTO "names" VALUES(1,-856624469,22);
INSERT INTO "names" VALUES(1,-467234010,11);
INSERT INTO "names" VALUES(1,-59263432,8);
INSERT INTO "names" VALUES(1,-18286520,20);
INSERT INTO "names" VALUES(1,109200878,5);
INSERT INTO "names" VALUES(1,282241621,18);
INSERT INTO "names" VALUES(1,355592778,3);
INSERT INTO "names" VALUES(1,809760800,23);
INSERT INTO "names" VALUES(1,885050551,2);
INSERT INTO "names" VALUES(1,1016206233,17);
INSERT INTO "names" VALUES(1,1322145186,12);
INSERT INTO "names" VALUES(1,1417198896,21);
INSERT INTO "names" VALUES(1,1885977395,6);
INSERT INTO "names" VALUES(1,1914535622,10);
CREATE TABLE nodes (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n       INTEGER PRIMARY KEY,
    parent  INTEGER REFERENCES nodes ON DELETE RESTRICT,
    item    INTEGER REFERENCES items ON DELETE RESTRICT,
    key     BLOB NOT NULL,
    erased  TEXT
) STRICT;
INSERT INTO "nodes" VALUES(1,1,NULL,NULL,X'068D08196341B65C362ACE172837C8FC174E74F9CB30B1A7475D2122D51E1870',NULL);
INSERT INTO "nodes" VALUES(1,2,1,1,X'D5A8D0BC8009E6434FB17437889A152F2A4864FE5812E2EE8A08356E06987CAE',NULL);
INSERT INTO "nodes" VALUES(1,3,2,2,X'7E612CCDD1CD9A78F86A83DA406BA437C2F870AE095DE49A919B1AD78DD4EA2B',NULL);
INSERT INTO "nodes" VALUES(1,4,3,3,X'4404DE1219CB91B2A17983EF2D1F98D46C1A4FB3689C56B6F70B092D2C5734E3',NULL);
INSERT INTO "nodes" VALUES(1,5,4,4,X'B079C2C536A199069E6A4F5EEA13AAFF4FCB9D5DD50D2A71F54D9AB0B1A82B18',NULL);
INSERT INTO "nodes" VALUES(1,6,2,5,X'FA0D4D21B22414DE10165F0C06A2A40CB0EC3896B2D72AD9963CA72DEC680973',NULL);
INSERT INTO "nodes" VALUES(1,7,6,3,X'A21492D6D7C3C9DB7B3BCF5821909135ACFEE7958BF421005726844189B5292C',NULL);
INSERT INTO "nodes" VALUES(1,8,7,6,X'BC1A5D6B7E8EB4F2934E7287D131A767F1DCFC2E87AB20BCCD4618E8C75A1980',NULL);
INSERT INTO "nodes" VALUES(1,9,8,7,X'5563229F8870FF5932EC4FD427CFCE277166FA43767A02D74F96FCB48B76FB97',NULL);
INSERT INTO "nodes" VALUES(1,10,9,8,X'1F08BAEB1EC462E84D3ABEFB0D0FB7388FEED90C5D46D40030543E874B370555',NULL);
INSERT INTO "nodes" VALUES(1,11,10,9,X'739B4490BFC6F02998005969ABE2AA452A90A541B9A6A090E928427999B0FBB3',NULL);
INSERT INTO "nodes" VALUES(1,12,2,10,X'90966C709D384CE8340D60A70109628ED7F1F05138B51C19FBE1A9488A7A61EB',NULL);
INSERT INTO "nodes" VALUES(1,13,12,3,X'53361C1152D0C462C13F69EEF3115ED8F96D840AD8B00558577D1480C5C47A7F',NULL);
INSERT INTO "nodes" VALUES(1,14,13,11,X'DAB0A2EC274DE99DA4E1E631E30A4549F8C8E02A574CEA2427E45B7390386DF5',NULL);
INSERT INTO "nodes" VALUES(1,15,14,7,X'60F39C1208762BEFCC239649B068E2B908DAD65284151A21345EE32DE9F7D9D3',NULL);
INSERT INTO "nodes" VALUES(1,16,15,12,X'7AE6C10B3672B954FA299A63BA91D12352AA6CEAD6A17C92134F007CFC13B58C',NULL);
INSERT INTO "nodes" VALUES(1,17,1,13,X'D42D97DC7F05FF6AB9872B1A4660006A36666C2F377D59312DA227A6FD6F86B0',NULL);
INSERT INTO "nodes" VALUES(1,18,17,14,X'73199D177BDD14C9406388C2776D74EC38835B80023A706005972F0B9EB5F526',NULL);
INSERT INTO "nodes" VALUES(1,19,18,15,X'73F6F6544B8090BA2C480E89D46F464859D465262825140B102906E0077A5A6C',NULL);
INSERT INTO "nodes" VALUES(1,20,19,16,X'7F8DB1FD22426DE6BFE51933A34A409D58DCADF09C482F03446DA7BB5D04C9FD',NULL);
INSERT INTO "nodes" VALUES(1,21,2,17,X'23C015066EE054B3BF2D47347C4AC191A0487E235D5363E0692D6986FD384DCB',NULL);
INSERT INTO "nodes" VALUES(1,22,21,3,X'1849D62D91929AA6F8ACEB8319F5E1788B9AAA1A0AB8F7AEF76C1FE749FAB0A5',NULL);
INSERT INTO "nodes" VALUES(1,23,22,18,X'EE87F4D7C5DDDE9ED8A90EA5C46FFAF20B07A49952F3B68DEEFA25A7975E1074',NULL);
INSERT INTO "nodes" VALUES(1,24,1,19,X'246E88C930FAD1F88F8544C8FB56D493BD5C693FBAC17CAD1C37538630116DFF',NULL);
INSERT INTO "nodes" VALUES(1,25,24,20,X'60F284BCAA5B79C59A6F5B4C3EBA374C9A3CCF9EEB06B7B2B7E8045F6ECFBD9B',NULL);
INSERT INTO "nodes" VALUES(1,26,25,21,X'DF30038D4B387D915D6D3373211C295885DF2C98318307CF7220F5E3803D19B0',NULL);
INSERT INTO "nodes" VALUES(1,27,24,22,X'C6270E84D2281B424085C5A5C31073F70956F4D8D63EEA78204BE48757A86548',NULL);
INSERT INTO "nodes" VALUES(1,28,27,23,X'F211B19861D42833F4B9BB88874A2A67D484AA72E433B5535B0451D023FB73D0',NULL);
CREATE TABLE repeated (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n       INTEGER PRIMARY KEY,
    hash    BLOB NOT NULL,
    body    TEXT NOT NULL
) STRICT;
INSERT INTO "repeated" VALUES(1,1,X'FDE83854B1B18C74C455CAEFE0D49B5E6D4585F1BA97AB386FB85AC2A30F1924','{"instructions":"Be brief."}');
INSERT INTO "repeated" VALUES(1,2,X'F0F917183B47A64E3A996937365076639D737454D2287668EC9A6D849B5F7D8F','["scripted/echo","session","embedded",null,null,null,false,{"input_tokens":0,"output_tokens":0,"total_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens_details":{"reasoning_tokens":0}}]');
INSERT INTO "repeated" VALUES(1,3,X'58669424C2EECF059EAA91144CA10DC02BCACE9049DE8EC35563DF72F5F4E374','["scripted/scripts/long.json","conversation","embedded",null,null,"conv_0af7d72c9c84286141693031d0fe3d46",true,{"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}]');
INSERT INTO "repeated" VALUES(1,4,X'9BCD3452F03D8F2335CB8DD6F6CC483E5E359E5A42DBEEC183B06055D3DC6884','["scripted/scripts/long.json","chain","embedded",null,null,null,true,{"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}]');
INSERT INTO "repeated" VALUES(1,5,X'02ED5F79506E601A6B707A88CCCA27F2C73DADC45B8B4CD1088FECC4257BF29F','{"context_management":[{"type":"compaction"}]}');
INSERT INTO "repeated" VALUES(1,6,X'52D2B6676A6493F4CF9C8620F7CA2E4729CDD8B5AEF53FCBFCCEB717AAA68E1F','["scripted/scripts/long.json","chain","embedded",null,null,null,false,{"input_tokens":0,"output_tokens":0,"total_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens_details":{"reasoning_tokens":0}}]');
INSERT INTO "repeated" VALUES(1,7,X'B538EF61610C5DD11C50B75F6C49299E4F0CAD7F3511F09DB48137BD193E76ED','["scripted/echo","replay","embedded",null,null,null,false,{"input_tokens":0,"output_tokens":0,"total_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens_details":{"reasoning_tokens":0}}]');
INSERT INTO "repeated" VALUES(1,8,X'7A78126E2F4F230C5680168EB6993AAEA6EA6401653062C92765BA4DACBF9326','{"instructions":"Help.","tools":[{"type":"function","name":"refund","description":"Pay an order back.","parameters":{"type":"object","properties":{"order":{"type":"string"},"cents":{"type":"integer"}},"required":["order","cents"],"additionalProperties":false},"strict":true}]}');
INSERT INTO "repeated" VALUES(1,9,X'6E4C069C3903B5BEA581AB1927128BCDEFF87939A0BEC5F0AB9FF65FBB88249D','["scripted/scripts/refund.json","session","embedded",null,null,null,false,{"input_tokens":0,"output_tokens":0,"total_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens_details":{"reasoning_tokens":0}}]');
CREATE TABLE runs (
    tenant    INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    link      INTEGER PRIMARY KEY REFERENCES links ON DELETE RESTRICT,
    ended_at  REAL
) STRICT;
CREATE TABLE secrets (
    name   TEXT PRIMARY KEY,
    value  BLOB NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "secrets" VALUES('seal',X'4C891632168E9C3E6711D6EB83742AA6F2C1975A82E6B94A3D2358FFB6F1156F');
CREATE TABLE sessions (
    tenant   INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n        INTEGER PRIMARY KEY,
    id       TEXT NOT NULL,
    name     TEXT,
    head     INTEGER REFERENCES nodes ON DELETE RESTRICT,
    mark     INTEGER REFERENCES nodes ON DELETE RESTRICT,
    written  INTEGER REFERENCES nodes ON DELETE RESTRICT,
    link     INTEGER REFERENCES links ON DELETE RESTRICT,
    used_at  REAL,
    removed  INTEGER NOT NULL DEFAULT 0,
    record   TEXT
) STRICT;
INSERT INTO "sessions" VALUES(1,1,'ses_fd0e9a6d0c31d0eb13549d7eea4bbab6','by-session',5,5,NULL,2,1.79533444299703669544e+09,0,'["session","scripted/echo",1795334442.3624275,"embedded",null,null,null,"Be brief."]');
INSERT INTO "sessions" VALUES(1,2,'ses_dad397fd4f56f43b3321adbfaeb6586b','by-conversation',11,11,NULL,6,1.79533444687829446791e+09,0,'["conversation","scripted/scripts/long.json",1795334443.5138264,"embedded",null,null,"conv_0af7d72c9c84286141693031d0fe3d46","Be brief."]');
INSERT INTO "sessions" VALUES(1,3,'ses_4da74b62a03ae2c54cd835f8cec0dde7','by-chain',20,1,NULL,10,1.79533444985244941714e+09,0,'["chain","scripted/scripts/long.json",1795334447.4027681,"embedded",null,null,null,"Be brief."]');
INSERT INTO "sessions" VALUES(1,4,'ses_d45230667160a3ec11262ff5ca9b6178','hello',23,23,23,12,1.79533445111928749082e+09,0,'["replay","scripted/echo",1795334450.41437,"embedded",null,null,"@FOLDER@/talk.json",null]');
INSERT INTO "sessions" VALUES(1,5,'ses_728828145965b876b6442f10ad19f1db','refund',26,26,NULL,13,1.79533445249901628488e+09,0,'["session","scripted/scripts/refund.json",1795334452.3660529,"embedded",null,null,null,null]');
INSERT INTO "sessions" VALUES(1,6,'ses_e8f61b73c5374d87d219c2c5ef4e2f8e','decided',28,28,NULL,14,1.79533445323566484457e+09,0,'["session","scripted/scripts/refund.json",1795334453.0743043,"embedded",null,null,null,null]');
CREATE TABLE tenants (
    n     INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO "tenants" VALUES(1,'local');
CREATE TABLE traces (
    n  INTEGER PRIMARY KEY
) STRICT;
INSERT INTO "words_config" VALUES('version',4);
INSERT INTO "words_data" VALUES(1,X'158247');
INSERT INTO "words_data" VALUES(10,X'0000000002021100021101010101010000');
INSERT INTO "words_data" VALUES(137438953473,X'0000005304303530301702060102613117020402077070726F76616C1602050202736B160203010563656E74731702050103666F7216020401016916020201056F726465721702030106726566756E641702020408070C070A08060A');
INSERT INTO "words_data" VALUES(2336462209025,X'000002A40430353030150206010161060A0910101010020A0910101010030A0910101010010A091010101002013113020302020402026E64060A0310101010020A0310101010030A0310101010010A031010101002077070726F76616C140205020272650302030102030A0203040203020173060A0B10101010020A0B10101010030A0B10101010010A0B1010101003016B14020301046261636B130204010563656E74731502050102646F060A0D10101010020A0D10101010030A0D10101010010A0D1010101001076578706C61696E060A1010101010020A1010101010030A1010101010010A10101010100105666972737406020205020202026F72060A0710101010020A0710101010030A0710101010010A07101010100802040102676F07020208020203026573060A0510101010020A0510101010030A0510101010010A0510101010010568656C6C6F0102020102020B020204020202026F770302020102020A020204020201016914020201026F6E060A0610101010010203010A0610101010030A0610101010010A061010101003020302047264657215020301037061791302020205656F706C65060A0C10101010020A0C10101010030A0C10101010010A0C1010101001057175697465060A0810101010020A0810101010030A0810101010010A08101010100106726566756E64150202010573686F727405020205020201047468656E080202040202040179060A0F10101010020A0F10101010030A0F10101010010A0F1010101003026973060A0410101010020A0410101010030A0410101010010A041010101001047768656E060A0E10101010020A0E10101010030A0E10101010010A0E101010100303696C65060A0A10101010020A0A10101010030A0A10101010010A0A101010100103796F750302040102040A020404020404081F09200C101F06090A20250D230A2013100626090823230B0D0C1F202221');
INSERT INTO "words_docsize" VALUES(1,X'01');
INSERT INTO "words_docsize" VALUES(2,X'01');
INSERT INTO "words_docsize" VALUES(3,X'03');
INSERT INTO "words_docsize" VALUES(4,X'03');
INSERT INTO "words_docsize" VALUES(5,X'01');
INSERT INTO "words_docsize" VALUES(6,X'47');
INSERT INTO "words_docsize" VALUES(7,X'02');
INSERT INTO "words_docsize" VALUES(8,X'47');
INSERT INTO "words_docsize" VALUES(10,X'01');
INSERT INTO "words_docsize" VALUES(11,X'47');
INSERT INTO "words_docsize" VALUES(12,X'47');
INSERT INTO "words_docsize" VALUES(13,X'01');
INSERT INTO "words_docsize" VALUES(14,X'03');
INSERT INTO "words_docsize" VALUES(15,X'02');
INSERT INTO "words_docsize" VALUES(17,X'01');
INSERT INTO "words_docsize" VALUES(18,X'03');
INSERT INTO "words_docsize" VALUES(19,X'03');
INSERT INTO "words_docsize" VALUES(20,X'04');
INSERT INTO "words_docsize" VALUES(21,X'05');
INSERT INTO "words_docsize" VALUES(22,X'04');
INSERT INTO "words_docsize" VALUES(23,X'05');
INSERT INTO "words_idx" VALUES(1,X'',2);
INSERT INTO "words_idx" VALUES(17,X'',2);
CREATE UNIQUE INDEX nodes_by_key ON nodes (tenant, substr(key, 1, 16));
CREATE INDEX nodes_by_parent ON nodes (parent);
CREATE INDEX nodes_by_item ON nodes (item);
CREATE UNIQUE INDEX repeated_by_hash ON repeated (tenant, hash);
CREATE UNIQUE INDEX sessions_by_id ON sessions (tenant, id);
CREATE UNIQUE INDEX sessions_by_name ON sessions (tenant, name);
CREATE INDEX sessions_by_head ON sessions (head);
CREATE INDEX sessions_by_mark ON sessions (mark);
CREATE INDEX sessions_by_written ON sessions (written);
CREATE INDEX sessions_by_link ON sessions (link);
CREATE UNIQUE INDEX links_by_id ON links (tenant, id);
CREATE INDEX links_by_parent ON links (parent);
CREATE INDEX links_by_session ON links (session);
CREATE INDEX links_by_saw ON links (saw);
CREATE INDEX links_by_head ON links (head);
CREATE UNIQUE INDEX conversations_by_id ON conversations (tenant, id);
CREATE INDEX conversations_by_head ON conversations (head);
CREATE INDEX links_by_route ON links (route);
CREATE INDEX links_by_parameters ON links (parameters);
CREATE INDEX members_by_conversation ON members (conversation);
CREATE UNIQUE INDEX agent_runs_by_id ON agent_runs (tenant, id);
CREATE INDEX agent_runs_by_session ON agent_runs (session);
CREATE UNIQUE INDEX agent_calls_by_id ON agent_calls (run, id);
COMMIT;
