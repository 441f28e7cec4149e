"""SQLite without the layers between: statements of SQLAlchemy, compiled once, on connections of our own.

What SQLAlchemy does between `execute` and SQLite, and on the way back, takes several times what SQLite itself needs:
in a profile of the orchestrator answering one question after another it was a third of all its work. So here SQLAlchemy
only says what a statement is in SQL, and how its parameters and columns are converted; that is kept and done without
it. `tests/contract/test_sqlite_prepared.py` holds every outcome equal to the plain path, which PostgreSQL takes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque, namedtuple
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, Executable, event, exc
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import Pool
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.selectable import ReturnsRows

from services.chassis.sqlite_inline import MANY_ROWS, InlineConnection, threads
from services.chassis.sqlite_log import LogSync

# Pages of the log at which a commit brings it into the file itself.
LONGEST_LOG = 4_000
# Connections that are kept open for the next transaction, and forms that are kept of one statement, which differ in the
# columns it sets and in how many values it compares with.
IDLE = 8
FORMS = 64

Convert = Callable[[Any], Any]
Row = tuple[Any, ...]


class Rows:
    """The outcome of a statement, read whole."""

    def __init__(self, names: tuple[str, ...], rows: list[Any], rowcount: int) -> None:
        self._names = names
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    @property
    def returns_rows(self) -> bool:
        """Whether the statement is one that has rows, be there none."""
        return bool(self._names)

    def all(self) -> list[Any]:
        """Return every row."""
        return self._rows

    def first(self) -> Any:
        """Return the first row, None when there is none."""
        return self._rows[0] if self._rows else None

    def one_or_none(self) -> Any:
        """Return the only row or None; raise MultipleResultsFound when there are more."""
        if len(self._rows) > 1:
            raise exc.MultipleResultsFound("Multiple rows were found when one or none was required")
        return self.first()

    def one(self) -> Any:
        """Return the only row; raise NoResultFound or MultipleResultsFound when there is not exactly one."""
        row = self.one_or_none()
        if row is None:
            raise exc.NoResultFound("No row was found when one was required")
        return row

    def scalar(self) -> Any:
        """Return the first column of the first row, None when there is none."""
        return self._rows[0][0] if self._rows else None

    def scalar_one(self) -> Any:
        """Return the first column of the only row; raise as `one` does."""
        return self.one()[0]

    def scalars(self) -> Rows:
        """Return the first column of every row in the row's place."""
        return Rows(self._names[:1], [row[0] for row in self._rows], self.rowcount)

    def mappings(self) -> Rows:
        """Return each row as a mapping by column name."""
        return Rows(self._names, [dict(zip(self._names, row, strict=True)) for row in self._rows], self.rowcount)


@dataclass(frozen=True, slots=True)
class _Form:
    """A statement as SQLite takes it.

    `binds` are, for each place, the parameter's name, the index in its list of values (-1 for a single one), the value
    when none is given, and the conversion. `columns` are the conversions of the columns that need one, by position.
    """

    sql: str
    binds: tuple[tuple[str, int, Any, Convert | None], ...]
    columns: tuple[tuple[int, Convert], ...]
    required: frozenset[str]

    def values(self, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the values in the order of their places. Raises StatementError when one is missing."""
        if not self.required <= parameters.keys():
            problem = f"values are required for the parameters {sorted(self.required - parameters.keys())}"
            raise exc.StatementError(problem, self.sql, parameters, exc.InvalidRequestError(problem))
        values = []
        for name, index, default, convert in self.binds:
            value = parameters.get(name, default)
            if index >= 0:
                value = value[index]
            values.append(value if convert is None else convert(value))
        return values


class PreparedConnection:
    """One transaction's connection. The methods are those of SQLAlchemy's AsyncConnection that services use."""

    def __init__(self, connection: InlineConnection, dialect: Dialect) -> None:
        self._connection = connection
        self.dialect = dialect

    async def execute(self, statement: Executable, parameters: Any = None) -> Rows:
        """Run a statement, with one mapping of parameters or a sequence of them; raise as SQLAlchemy does."""
        if isinstance(parameters, Sequence) and len(parameters) > 1:
            return await self._execute_many(statement, parameters)
        single = parameters[0] if isinstance(parameters, Sequence) and parameters else parameters or {}
        form = _form(statement, self.dialect, single, many=False)
        values = form.values(single)
        cursor = self._connection.driver_connection.cursor()
        try:
            await self._connection.run(lambda: cursor.execute(form.sql, values))
            if cursor.description is None:
                return Rows((), [], cursor.rowcount)
            found = cursor.fetchall()
        except sqlite3.Error as error:
            raise _as_sqlalchemys(error, form.sql, values) from error
        names = tuple(column[0] for column in cursor.description)
        named = _namer(names)
        return Rows(names, [named(_converted(row, form.columns)) for row in found], cursor.rowcount)

    async def _execute_many(self, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> Rows:
        form = _form(statement, self.dialect, rows[0], many=True)
        values = [form.values(row) for row in rows]
        cursor = self._connection.driver_connection.cursor()
        try:
            work = lambda: cursor.executemany(form.sql, values)  # noqa: E731
            await self._connection.run(work, aside=len(rows) > MANY_ROWS)
        except sqlite3.Error as error:
            raise _as_sqlalchemys(error, form.sql, values) from error
        return Rows((), [], cursor.rowcount)

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """Return the first column of the first row, None when there is none."""
        return (await self.execute(statement, parameters)).scalar()

    async def scalars(self, statement: Executable, parameters: Any = None) -> Rows:
        """Return the first column of every row."""
        return (await self.execute(statement, parameters)).scalars()


class Connections:
    """The connections of one SQLite file."""

    def __init__(self, engine: AsyncEngine, connect: Callable[..., InlineConnection]) -> None:
        self._dialect = engine.dialect
        self._connect = connect
        # Those that wait for the disk, and those that do not.
        self._idle: dict[bool, deque[InlineConnection]] = {False: deque(), True: deque()}
        self._log = LogSync(engine.url.database or "", threads)
        self._closed = False
        event.listen(engine.sync_engine, "engine_disposed", lambda _: self.close())

    @asynccontextmanager
    async def transaction(
        self, *, read_only: bool, relaxed: bool = False, at_once: bool = False
    ) -> AsyncIterator[PreparedConnection]:
        """Open a transaction: committed at the end, or rolled back by an exception. Raises SQLAlchemy's errors.

        The commit of a `relaxed` one does not wait for the disk, where it is a moment later, or with the next one.
        One that begins `at_once` does not give the loop away first.
        """
        # From here to its end it may wait for nothing; a burst of them must not keep the loop from everybody else.
        if not at_once:
            await asyncio.sleep(0)
        begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
        idle = self._idle[relaxed]
        connection = idle.pop() if idle else self._made(relaxed=relaxed)
        doing = begin
        try:
            await connection.run(lambda: connection.driver_connection.execute(begin).close())
            yield PreparedConnection(connection, self._dialect)
            doing = "COMMIT"
            await connection.finish()
            if relaxed:
                self._log.owe()
            elif not read_only:
                self._log.settle()
        except BaseException as error:
            connection.rollback()
            if isinstance(error, sqlite3.Error):
                raise _as_sqlalchemys(error, doing, ()) from error
            raise
        finally:
            if self._closed or len(idle) >= IDLE or connection.driver_connection.in_transaction:
                connection.close()
            else:
                idle.append(connection)

    def _made(self, *, relaxed: bool) -> InlineConnection:
        made = self._connect(relaxed=relaxed)
        made.checkpoint = self._log.checkpoint
        # Only where nobody comes to do it in time does a commit have to.
        made.driver_connection.execute(f"PRAGMA wal_autocheckpoint={LONGEST_LOG}").close()
        return made

    def close(self) -> None:
        """Close what is idle now, and the others when their transactions end."""
        self._closed = True
        self._log.close()
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


_connections: WeakKeyDictionary[Pool, Connections] = WeakKeyDictionary()


def prepare(engine: AsyncEngine, connect: Callable[..., InlineConnection]) -> None:
    """Let transactions of `engine` run on connections that `connect(relaxed=…)` makes, until it is disposed of."""
    _connections[engine.pool] = Connections(engine, connect)


def connections_of(engine: AsyncEngine) -> Connections | None:
    """Return what `prepare` made for the engine that `engine` is or is a view of; None for any other."""
    return _connections.get(engine.pool)


# --- what a statement is in SQL ---------------------------------------------------------------------------------------


class _Statement:
    """A statement's forms. What a list of values is expanded to depends on its length."""

    def __init__(self, compiled: SQLCompiler) -> None:
        self.expanding = frozenset(parameter.key for parameter in compiled.post_compile_params)
        self.forms: dict[Any, _Form] = {}


_statements: WeakKeyDictionary[Executable, _Statement] = WeakKeyDictionary()


def _form(statement: Executable, dialect: Dialect, parameters: Mapping[str, Any], *, many: bool) -> _Form:
    """Return a statement's form for such parameters, made at the first use and kept as long as the statement."""
    compiled = None
    known = _statements.get(statement)
    if known is None:
        compiled = _compiled(statement, dialect, parameters, many=many)
        known = _statements[statement] = _Statement(compiled)
    shape = (many, *parameters, *(len(parameters[name]) for name in known.expanding if name in parameters))
    form = known.forms.get(shape)
    if form is None:
        if len(known.forms) >= FORMS:
            known.forms.clear()
        compiled = compiled or _compiled(statement, dialect, parameters, many=many)
        form = known.forms[shape] = _made(statement, compiled, dialect, parameters)
    return form


def _compiled(statement: Any, dialect: Dialect, parameters: Mapping[str, Any], *, many: bool) -> SQLCompiler:
    compiled: SQLCompiler = statement.compile(dialect=dialect, column_keys=list(parameters), for_executemany=many)
    if compiled.insert_prefetch or compiled.update_prefetch or compiled.escaped_bind_names:
        raise NotImplementedError(f"defaults made in Python and names to be escaped are not known here: {compiled}")
    return compiled


def _made(statement: Any, compiled: SQLCompiler, dialect: Dialect, parameters: Mapping[str, Any]) -> _Form:
    expanded = compiled.construct_expanded_state(dict(compiled.params) | dict(parameters))
    given = {name: group for name, group in expanded.parameter_expansion.items() if name in parameters}
    places = {place: (name, index) for name, group in given.items() for index, place in enumerate(group)}
    binds = []
    for place in expanded.positiontup or ():
        name, index = places.get(place, (place, -1))
        convert: Any = expanded.processors.get(place)
        if (bind := compiled.binds.get(place)) is not None:
            convert = bind.type.dialect_impl(dialect).bind_processor(dialect)
        binds.append((name, index, expanded.parameters.get(place), convert))
    returned = list(statement.exported_columns) if isinstance(statement, ReturnsRows) else []
    convert_column = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in returned]
    return _Form(
        sql=expanded.statement,
        binds=tuple(binds),
        columns=tuple((position, convert) for position, convert in enumerate(convert_column) if convert),
        required=frozenset(name for name, bind in compiled.binds.items() if bind.required),
    )


@lru_cache(maxsize=512)
def _namer(names: tuple[str, ...]) -> Callable[[Sequence[Any]], Row]:
    """Return what gives the columns of a row their names."""
    make: Any = namedtuple  # noqa: PYI024 - its fields are known at run time only
    named: Callable[[Sequence[Any]], Row] = make("Row", names, rename=True)._make
    return named


def _converted(row: Row, columns: tuple[tuple[int, Convert], ...]) -> Sequence[Any]:
    if not columns:
        return row
    values = list(row)
    for position, convert in columns:
        values[position] = convert(values[position])
    return values


def _as_sqlalchemys(error: sqlite3.Error, sql: str, values: Any) -> exc.DBAPIError:
    """Return the error that SQLAlchemy raises for one of the driver's."""
    kind: type[exc.DBAPIError] = getattr(exc, type(error).__name__, exc.DBAPIError)
    return kind(sql, values, error)
