"""The modules of the packages to come (below `convo`), each with those of today that it is made of.

The tables in `names/` are added: names of classes, functions and constants, docstrings, and corrected rows.
"""

import runpy
from pathlib import Path

MODULES = """
agent_runner.config: engine.conduct
agent_runner.loop: engine.performing engine.telling
agent_runner.persistence: engine.run_keeping engine.standing
agent_runner.prepare: engine.preparing engine.agent_asking engine.handing
agent_runner.runner: engine.running engine.left_runs engine.run_state
agent_runner.tasks: engine.at_once
agent_runner.user_code: engine.theirs engine.hands engine.tooling engine.guarding
agents.agent: agents.agent agents.output
agents.graph: agents.graph agents.agent_tool
agents.handoff_history: handoffs.nesting handoffs.summary
agents.handoffs: handoffs.offering handoffs.planning
agents.sdk: agents.foreign agents.foreign_settings agents.foreign_behind agents.foreign_context
    agents.foreign_fields agents.foreign_filter
agents.toml: agents.tables
chat.conversation: engine.chat engine.naming engine.lease engine.turning
chat.files: engine.replay_file engine.item_file engine.state_file engine.attaching engine.schema
    engine.named_file engine.whole_file
chat.history_nav: engine.heads
chat.lookup: engine.looking engine.finding engine.walking engine.directory engine.paging engine.repairing
    engine.open_runs engine.glance
chat.open: engine.opening engine.keeping
chat.preview: engine.coming engine.sent_request
chat.session_record: engine.record engine.edges
chat.turn: engine.turn engine.calling engine.owner_tail engine.adopting
chat.watch: engine.watching
cli.agent_options: cli.run_flags cli.conduct cli.loading cli.apart cli.remembered_agents
cli.agent_run: cli.running cli.pauses cli.paused_files
cli.app: cli.app cli.commands cli.shape cli.options
cli.commands.approvals: cli.approvals
cli.approvals: cli.inbox
cli.commands.chat: cli.chat
cli.chat: cli.talking
cli.commands.compact: cli.compact
cli.compact: cli.compacting
cli.completion: cli.completions cli.suggesting cli.offering
cli.commands.config: cli.config
cli.config: cli.configuring cli.keeping_keys
cli.context: cli.wiring cli.desk cli.forking
cli.commands.convert: cli.convert
cli.convert: cli.converting
cli.commands.diff: cli.diff
cli.diff: cli.comparing
cli.commands.doctor: cli.doctor
cli.doctor: cli.checkup cli.looking cli.looking_models
cli.doctor_checks: cli.judging cli.judging_store
cli.commands.export: cli.export
cli.export: cli.exporting cli.exporting_runs
cli.commands.import_: cli.import_
cli.import_: cli.importing
cli.input: cli.piped_input
cli.commands.inspect: cli.inspect
cli.inspect: cli.forms cli.inspecting_page cli.watching
cli.commands.lint: cli.lint
cli.lint: cli.linting
cli.manual: cli.manual
cli.commands.models: cli.models
cli.models: cli.providers cli.fetching
cli.commands.next: cli.next
cli.next: cli.upcoming cli.upcoming_run
cli.output: cli.saying cli.failures cli.exits
cli.commands.race: cli.race
cli.race: cli.racing
cli.redact: cli.redacting
cli.commands.repair: cli.repair
cli.repair: cli.repairing
cli.repl: cli.at_prompt cli.standing cli.shortening cli.changing
cli.resolve: cli.known cli.subject cli.states
cli.commands.resume: cli.resume
cli.resume: cli.resuming cli.going_on cli.verdicts cli.choosing cli.keys
cli.commands.schema: cli.schema
cli.commands.serve: cli.serve
cli.serve: cli.serving
cli.commands.sessions: cli.sessions
cli.sessions: cli.records
cli.commands.store: cli.store
cli.store: cli.storing
compaction.planning: compaction.planning compaction.due compaction.truncating compaction.folding
compaction.window: compaction.view compaction.sealed compaction.summary compaction.cutting
config.credentials: config.keys config.trust
config.editor: config.editing
config.loader: config.files config.layers config.binding config.choice
config.model_lists: config.model_lists
config.schema: config.shape
config.settings: config.settings config.providers config.prices config.storage config.postgres config.places
    config.names config.rates
config.values: config.checks config.secret config.durations config.origin config.expand
endpoints.base: endpoints.contract endpoints.errors
chat.endpoint_factory: endpoints.open endpoints.late endpoints.on_behalf
endpoints.remote: endpoints.remote.endpoint endpoints.remote.connection endpoints.remote.answer
history.accumulator: items.partial items.wellformed
history.canonical: items.canonical
history.items: items.kinds items.shapes items.text items.wire items.ids
history.pairing: items.pairing
history.records: history.session history.link history.owner history.remembered
history.tree: history.tree history.prefix history.compare
inspect.context_window: inspection.window inspection.coming
inspect.diff: inspection.sides inspection.requests inspection.pointing inspection.drift
inspect.redaction: inspection.redacting inspection.secrets inspection.encoded
inspect.serialize: inspection.shape inspection.document inspection.passages
inspect.tree: inspection.forks inspection.strung inspection.walked
inspect.view: inspection.known inspection.places inspection.open_run inspection.figures inspection.bill
    inspection.chart inspection.snippet
lint.chain: inspection.linting.owners
lint.items: inspection.linting.ids inspection.linting.shapes inspection.linting.arguments
    inspection.linting.pairs
lint.model: inspection.linting.finding inspection.linting.view
lint.reasoning: inspection.linting.thoughts inspection.linting.seals inspection.linting.compactions
lint.repair: inspection.linting.mending
lint.report: inspection.linting.report inspection.linting.sarif inspection.linting.lines
lint.rules: inspection.linting.rules
lint.secrets: inspection.linting.exposed
models.anthropic: models.anthropic models.anthropic_events models.anthropic_request models.anthropic_thinking
models.anthropic_messages: models.anthropic_messages
models.base: models.contract models.catalogue models.turns models.sealed models.ignored
models.chat_completions: models.chat models.chat_chunks models.chat_request
models.chat_messages: models.chat_messages
models.errors: models.foreign
models.factory: models.open
models.http: models.line models.account models.bodies
models.limits: models.limited
models.local: models.local.model models.local.engine
models.local_process: models.local.child
models.responses: models.responses models.responses_events models.responses_request
models.scripted: models.scripted
models.stream: models.stream
models.weights: models.local.weights
responses_api.background: endpoints.embedded.background endpoints.embedded.ledger endpoints.embedded.following
responses_api.compaction: endpoints.embedded.compacting endpoints.embedded.summarising
responses_api.conversations: endpoints.embedded.conversations
responses_api.deps: endpoints.embedded.edges endpoints.embedded.runs endpoints.embedded.sealing
    endpoints.embedded.lock
responses_api.endpoint: endpoints.embedded.endpoint endpoints.embedded.service endpoints.embedded.stateless
    endpoints.embedded.connection
responses_api.errors: endpoints.embedded.refusals
responses_api.history: endpoints.embedded.context endpoints.embedded.pairs endpoints.embedded.listing
    endpoints.embedded.strict
responses_api.response: endpoints.embedded.resource endpoints.embedded.ending endpoints.embedded.membership
responses_api.truncation: endpoints.embedded.fitting
responses_api.turn: endpoints.embedded.turn endpoints.embedded.opening endpoints.embedded.listening
responses_api.validation: endpoints.embedded.requests endpoints.embedded.inputs endpoints.embedded.checks
runs.approvals: run.inbox
runs.machine: run.table run.moves run.answers run.closing
runs.serialize: run.keeping run.recovering
runs.state: run.state run.events run.effects
runstate.approvals: runstate.deciding runstate.editing
runstate.run_items: runstate.values runstate.run_items runstate.account
runstate.calls: runstate.batch
runstate.agents: runstate.whose runstate.lasting
runstate.document: runstate.text runstate.paths
runstate.export: runstate.making runstate.processed runstate.totals
runstate.identity: runstate.identity
runstate.import_: runstate.taking runstate.told runstate.sendable
runstate.reader: runstate.reading runstate.shape runstate.summary
runstate.relabel: runstate.relabel
runstate.state: runstate.state runstate.nested runstate.records runstate.version
runstate.writer: runstate.writing runstate.signing
runtime: clock ids processes notices temporary
server.app: gateway.application
server.auth: gateway.keys
server.http: gateway.exchange gateway.documents gateway.refusals gateway.queries gateway.callers
    gateway.metrics
server.inspector: gateway.page gateway.inspecting
server.pages: pages.inspector pages.inspected pages.conversation
server.rate_limits: gateway.rate_limits
server.routes: gateway.routes gateway.responses gateway.conversations gateway.standing gateway.openapi
    gateway.asked
server.schemas: gateway.schemas
server.server: gateway.serving gateway.protocol gateway.websocket_protocol
server.sse: gateway.relaying gateway.going
server.websocket: gateway.websocket gateway.websocket_messages
stores.base: stores.contract stores.rules stores.upkeep stores.condition
stores.codec: stores.forms stores.verbatim stores.terms
stores.factory: stores.open
stores.lease: stores.leasing
stores.memory: stores.memory.store stores.memory.tenant stores.memory.tree stores.memory.running
    stores.memory.agents stores.memory.upkeep stores.memory.pruning
stores.postgres.admin: stores.postgres.upkeep stores.postgres.examining stores.postgres.checking
stores.postgres.commit: stores.postgres.changing stores.postgres.looking stores.postgres.collecting
    stores.postgres.removing
stores.postgres.connection: stores.postgres.database stores.postgres.faults stores.postgres.reaching
    stores.postgres.tenant stores.postgres.names stores.postgres.bodies stores.postgres.schema
stores.postgres.gc: stores.postgres.pruning
stores.postgres.records: stores.postgres.records stores.postgres.links
stores.postgres.runs: stores.postgres.runs stores.postgres.agents stores.postgres.leases
stores.postgres.search: stores.postgres.searching
stores.postgres.store: stores.postgres.store
stores.postgres.tree: stores.postgres.tree stores.postgres.planning
stores.sqlite.admin: stores.sqlite.upkeep stores.sqlite.examining
stores.sqlite.backup: stores.sqlite.backup stores.sqlite.new_file
stores.sqlite.check: stores.sqlite.checking
stores.sqlite.connection: stores.sqlite.database stores.sqlite.lane stores.sqlite.faults stores.sqlite.tenant
    stores.sqlite.schema stores.sqlite.filling stores.sqlite.traces stores.sqlite.names
stores.sqlite.gc: stores.sqlite.removing stores.sqlite.pruning
stores.sqlite.records: stores.sqlite.records stores.sqlite.links
stores.sqlite.recover: stores.sqlite.page_reader stores.sqlite.recover
stores.sqlite.runs: stores.sqlite.runs stores.sqlite.agents stores.sqlite.leases
stores.sqlite.search: stores.sqlite.searching
stores.sqlite.store: stores.sqlite.store stores.sqlite.changing
stores.sqlite.tree: stores.sqlite.tree stores.sqlite.unneeded
strategies.branching: strategies.branching strategies.rewinding strategies.replacing
strategies.requests: strategies.sending strategies.newest strategies.retrying strategies.reconciling
strategies.state: strategies.held strategies.handles
strategies.transfer: strategies.carrying
terminal.answer: ui.answering ui.sheet
terminal.approvals: ui.pausing ui.asking ui.deciding ui.telling ui.open_run
terminal.diff_view: ui.differing
terminal.inspect_view: ui.inspecting ui.tree ui.chart ui.coming
terminal.list_views: ui.listing ui.holdings ui.models ui.known_models ui.settings
terminal.markdown.render: ui.markdown.rendering ui.markdown.spans ui.markdown.tables ui.markdown.code
    ui.markdown.frames ui.markdown.inlines ui.markdown.parsing
terminal.markdown.stream: ui.markdown.cutting ui.markdown.reading ui.markdown.page ui.markdown.painting
terminal.prompt: ui.prompt ui.rewriting ui.editor ui.editor_input ui.editor_keys ui.editor_history
    ui.editor_words ui.unechoed ui.completing
terminal.repl: ui.conversing ui.runs ui.earlier ui.commands
terminal.report_views: ui.raced ui.converted ui.compacted ui.linting ui.findings
terminal.slash_commands: ui.along ui.asking_with ui.copying ui.elsewhere ui.going_back ui.shelling ui.guide
    ui.thinking
terminal.status_line: ui.bar ui.receipt ui.spending ui.window ui.status
terminal.pager: ui.pager
terminal.signals: ui.signals
terminal.terminal: ui.medium ui.table ui.labelled ui.answer
tools.schema: tools.forms tools.doc
tools.tool: tools.tool tools.naming tools.outcomes tools.arguments
transfer.compact: transfer.compacting transfer.summing transfer.branches transfer.shortening
transfer.convert: transfer.taking transfer.handing transfer.seeding transfer.in_chat transfer.beside
transfer.databases: transfer.databases transfer.agents_sessions transfer.llm_logs transfer.llm_messages
    transfer.llm_responses transfer.llm_attached
transfer.export: transfer.writing
transfer.import_: transfer.reading transfer.keeping transfer.run_states
transfer.race: transfer.racing
usage.counting: tokens.counting tokens.estimate tokens.usage
usage.models: tokens.models tokens.prices tokens.windows
"""
"""A line that is indented belongs to the one before it."""

MOVES = {
    new: olds.split()
    for new, olds in (line.split(": ", 1) for line in MODULES.replace("\n    ", " ").strip().splitlines())
}

NAMES: dict[str, dict[str, str]] = {}
"""Old module -> old name -> new name."""

LOCAL: dict[tuple[str, str], str] = {}
DOCS: dict[str, str] = {}

for _file in sorted((Path(__file__).parent / "names").glob("*.py")):
    _part = runpy.run_path(str(_file))
    MOVES |= _part["MOVES"]
    for _module, _names in _part["NAMES"].items():
        NAMES.setdefault(_module, {}).update(_names)
    LOCAL |= _part.get("LOCAL", {})
    DOCS |= _part["DOCS"]

for _module in [module for module in MOVES if module.startswith("cli.commands.")]:
    DOCS.setdefault(_module, f"`convo {_module.rpartition('.')[2].rstrip('_')}`: its arguments, options and help.")

FACADES = ["agents", "tools"]
"""Packages whose exports are documented."""

DROPPED = [
    "cli",
    "compaction",
    "config",
    "endpoints",
    "endpoints.embedded",
    "endpoints.remote",
    "engine",
    "gateway",
    "handoffs",
    "history",
    "inspection",
    "inspection.linting",
    "items",
    "models",
    "models.local",
    "pages",
    "run",
    "runstate",
    "stores",
    "stores.memory",
    "stores.postgres",
    "stores.sqlite",
    "strategies",
    "tokens",
    "transfer",
    "ui",
    "ui.markdown",
]
