"""Which statements may run: one query that reads, of tables that may be read, with functions that only compute.

What runs is written anew from the parsed tree, so nothing reaches the database that was not looked at. The database's
own role and a read-only transaction stand behind this.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.optimizer.scope import traverse_scope

MAX_CHARACTERS = 20_000
_ACTS = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.Lock, exp.Pragma, exp.Placeholder, exp.Parameter)
# Functions that the parser knows by name and that read files, count, or speak to a service.
_FORBIDDEN = (exp.ReadCSV, exp.ReadParquet, exp.NextValueFor, exp.Predict, exp.GenerateEmbedding)
# Functions that it does not know, and that only compute.
_HARMLESS_WORDS = """
abs acos age any_value array_append array_cat array_lower array_ndims array_position array_positions array_prepend
array_remove array_replace array_to_json array_to_string array_upper ascii asin atan atan2 bit_and bit_count
bit_length bit_or bit_xor bool_and bool_or btrim cardinality cbrt ceil ceiling changes char char_length
clock_timestamp concat_ws cos cot date date_add date_bin date_part date_subtract datetime decode degrees
difference div encode every exp family floor format gcd glob hex host ifnull iif initcap instr isempty isfinite
json json_agg json_array json_array_elements json_array_elements_text json_array_length json_build_array
json_build_object json_each json_each_text json_extract json_extract_path json_extract_path_text json_group_array
json_group_object json_insert json_object json_object_agg json_object_keys json_patch json_quote json_remove
json_replace json_set json_strip_nulls json_tree json_type json_typeof json_valid jsonb_agg jsonb_array_elements
jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text
jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object_agg jsonb_object_keys jsonb_path_exists
jsonb_path_match jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_pretty jsonb_set
jsonb_strip_nulls jsonb_typeof julianday justify_days justify_hours justify_interval lcm levenshtein like
likelihood likely ln log10 lower lower_inc make_date make_interval make_time make_timestamp make_timestamptz
masklen max_by metaphone min_by mod mode network now nullif num_nonnulls num_nulls numnode octet_length overlay
pg_size_pretty pg_typeof phraseto_tsquery pi plainto_tsquery pow power printf querytree quote quote_ident
quote_literal radians range_merge regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace
regexp_split_to_array regexp_split_to_table regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2
regr_slope row_to_json rtrim scale setweight sha256 sign similarity sin soundex sqrt starts_with
statement_timestamp strftime string_to_array string_to_table strip substr substring tan time timediff timeofday
timezone to_hex to_json to_jsonb to_number to_tsquery to_tsvector total translate trim_scale trunc ts_headline
ts_rank ts_rank_cd typeof unaccent unicode unistr unixepoch unlikely upper upper_inc websearch_to_tsquery
width_bucket word_similarity
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())


class StatementRefused(Exception):
    """The statement may not run; the message tells the model what to correct."""


def check(text: str, dialect: str, *, tables: Collection[str] = (), functions: Collection[str] = ()) -> str:
    """Return the statement to run, or raise StatementRefused.

    `tables` are the only ones that may be read when there are any; `functions` may be called beside the known ones.
    """
    query = _parsed(text, dialect)
    for node in query.walk():
        if isinstance(node, _ACTS):
            raise StatementRefused(f"{node.key.upper()} is not allowed: send one SELECT that only reads")
        if isinstance(node, exp.Func):
            _check_function(node, functions)
    allowed = {table.lower() for table in tables}
    for table in _tables(query):
        _check_table(table, allowed)
    return query.sql(dialect=dialect, comments=False)


def tables_of(text: str, dialect: str) -> frozenset[str]:
    """Return the names of tables in `text`, lower case and without schema; empty when it cannot be parsed."""
    try:
        return frozenset(table.name.lower() for table in sqlglot.parse_one(text, dialect=dialect).find_all(exp.Table))
    except SqlglotError:
        return frozenset()


def _parsed(text: str, dialect: str) -> exp.Query:
    if len(text) > MAX_CHARACTERS:
        raise StatementRefused(f"the statement has {len(text)} characters; at most {MAX_CHARACTERS} are taken")
    try:
        parsed = sqlglot.parse(text, dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        raise StatementRefused(f"the statement cannot be read as {dialect}{_where(error)}") from error
    # A semicolon of its own holds the comment behind it.
    statements = [each for each in parsed if each is not None and not isinstance(each, exp.Semicolon)]
    if len(statements) != 1:
        raise StatementRefused(f"{len(statements)} statements were sent; send exactly one SELECT")
    (query,) = statements
    if not isinstance(query, exp.Query):
        raise StatementRefused(f"{query.key.upper()} is not allowed: send one SELECT that only reads")
    return query


def _where(error: Exception) -> str:
    """Return where the parser stopped; its own words mark the place for terminals."""
    if isinstance(error, ParseError) and error.errors:
        first = error.errors[0]
        return f": line {first.get('line')}, column {first.get('col')}, near '{first.get('highlight')}'"
    return ""


def _check_function(node: exp.Func, functions: Collection[str]) -> None:
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        if name in _HARMLESS or name in functions:
            return
    elif isinstance(node, _FORBIDDEN):
        name = node.sql_name().lower()
    else:
        return
    raise StatementRefused(f"the function '{name}' may not be called; do without it")


def _tables(query: exp.Query) -> list[exp.Table]:
    """Return the tables that are read, without names that a WITH defines in their place."""
    defined: set[int] = set()
    try:
        scopes = traverse_scope(query)
    except SqlglotError as error:
        raise StatementRefused(f"the statement cannot be followed: {str(error)[:300]}") from error
    for scope in scopes:
        defined.update(id(table) for table in scope.tables if not table.db and table.name in scope.cte_sources)
    return [table for table in query.find_all(exp.Table) if id(table) not in defined]


def _check_table(table: exp.Table, allowed: Collection[str]) -> None:
    if isinstance(table.this, exp.Func):
        return  # a function's rows: judged as a function
    schema, name = table.db.lower(), table.name.lower()
    if table.catalog:
        raise StatementRefused(f"'{table.sql()}' names another database; leave that out")
    full = f"{schema}.{name}" if schema else name
    if allowed:
        if not {full, name if schema in ("", "public", "main") else full} & set(allowed):
            raise StatementRefused(f"the table '{full}' may not be read; there are: {', '.join(sorted(allowed))}")
    elif schema == "pg_catalog" or name.startswith(("pg_", "sqlite_")):
        raise StatementRefused(f"the system table '{full}' may not be read; the description names the tables")
