"""Decides whether repeated batches of a streaming query produce the same rows in the same tasks and order.

The decision is based on the analyzed plan as JSON (Catalyst's ``toJSON``) and on lists of operators and expressions
that are known to be repeatable; any other operator or expression makes the plan unrepeatable. Listed operators process
each row separately in the task that reads it, so Spark does not plan an exchange for them. Spark's own determinism flag
is not sufficient: it is set for ``aes_encrypt``, which uses a random initialization vector.

The behavior of scalar Python, pandas, Scala and Java UDFs is unknown, so Spark's contract applies here as well: they
are deterministic unless marked with ``asNondeterministic``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SOURCE = "StreamingRelationV2"
"""Leaf of a stream's plan; a repeatable plan has exactly one leaf, which is of this kind."""
OPERATORS = frozenset(("Project", "Filter", "SubqueryAlias", "View", "Generate", "EventTimeWatermark", SOURCE))
"""Logical operators that map the rows of a task and preserve their order."""
UDFS = frozenset(("PythonUDF", "ScalaUDF"))
_EXPRESSIONS = {
    "names, values and types": (
        "Alias AttributeReference BoundReference Literal Cast UpCast Collate ResolvedCollation KnownNotNull "
        "KnownNullable"
    ),
    "comparison": (
        "And Or Not EqualTo EqualNullSafe GreaterThan GreaterThanOrEqual LessThan LessThanOrEqual In InSet Between If "
        "CaseWhen Coalesce Greatest Least IsNull IsNotNull IsNaN NaNvl NullIf Nvl Nvl2 IfNull AtLeastNNonNulls"
    ),
    "arithmetic": (
        "Add Subtract Multiply Divide IntegralDivide Remainder Pmod UnaryMinus UnaryPositive Abs Signum Ceil Floor "
        "RoundCeil RoundFloor Round BRound Rint Sqrt Cbrt Pow Exp Expm1 Log Log10 Log1p Log2 Logarithm Sin Cos Tan "
        "Asin Acos Atan Atan2 Sinh Cosh Tanh ToDegrees ToRadians Hypot Factorial Hex Unhex Bin Conv BitwiseAnd "
        "BitwiseOr BitwiseXor BitwiseNot BitwiseCount BitwiseGet ShiftLeft ShiftRight ShiftRightUnsigned WidthBucket "
        "MakeDecimal UnscaledValue CheckOverflow PromotePrecision TryEval TryAdd TrySubtract TryMultiply TryDivide"
    ),
    "strings and bytes": (
        "Upper Lower InitCap Length BitLength OctetLength Concat ConcatWs Substring SubstringIndex Left Right "
        "Contains StartsWith EndsWith Like ILike LikeAll LikeAny RLike NotLikeAll NotLikeAny StringTrim "
        "StringTrimLeft StringTrimRight StringTrimBoth StringLPad StringRPad StringRepeat StringReplace StringReverse "
        "StringSpace StringSplit StringSplitSQL StringTranslate StringInstr StringLocate SplitPart Overlay "
        "FormatString FormatNumber RegExpReplace RegExpExtract RegExpExtractAll RegExpCount RegExpSubStr RegExpInStr "
        "Base64 UnBase64 Encode Decode StringDecode Ascii Chr SoundEx Levenshtein FindInSet Elt ToBinary ToCharacter "
        "ToNumber TryToNumber Sentences"
    ),
    "hashes": "Md5 Sha1 Sha2 Crc32 Murmur3Hash XxHash64",
    "structs, arrays and maps": (
        "CreateNamedStruct CreateStruct CreateArray CreateMap GetStructField GetArrayStructFields GetArrayItem "
        "GetMapValue ElementAt UpdateFields WithField DropField Size Cardinality ArrayContains ArrayPosition "
        "ArrayDistinct ArrayExcept ArrayIntersect ArrayUnion ArrayJoin ArrayMax ArrayMin ArrayRemove ArrayRepeat "
        "ArrayAppend ArrayPrepend ArrayInsert ArrayCompact ArraysOverlap ArraysZip ArraySort SortArray ArraySize "
        "Flatten Reverse Slice Sequence Get MapKeys MapValues MapEntries MapConcat MapContainsKey MapFromArrays "
        "MapFromEntries StringToMap"
    ),
    "lambdas": (
        "LambdaFunction NamedLambdaVariable ArrayTransform ArrayFilter ArrayExists ArrayForAll ArrayAggregate ZipWith "
        "MapFilter TransformKeys TransformValues MapZipWith"
    ),
    "rows from arrays and maps": "Explode PosExplode Inline Stack JsonTuple",
    "JSON, CSV and Avro": (
        "JsonToStructs StructsToJson GetJsonObject LengthOfJsonArray JsonObjectKeys CsvToStructs StructsToCsv "
        "AvroDataToCatalyst CatalystDataToAvro"
    ),
    "dates and times": (
        "Year Quarter Month DayOfMonth DayOfWeek DayOfYear WeekDay WeekOfYear YearOfWeek Hour Minute Second "
        "SecondWithFraction DateAdd DateSub DateDiff AddMonths MonthsBetween LastDay NextDay TruncDate TruncTimestamp "
        "DateFormatClass FromUnixTime FromUTCTimestamp ToUTCTimestamp ToUnixTimestamp GetTimestamp ParseToDate "
        "ParseToTimestamp ToTimestamp SecondsToTimestamp MillisToTimestamp MicrosToTimestamp UnixSeconds UnixMillis "
        "UnixMicros UnixDate DateFromUnixDate MakeDate MakeTimestamp MakeInterval MakeDTInterval MakeYMInterval "
        "TimeAdd TimestampAddInterval TimestampAddYMInterval DateAddInterval DateAddYMInterval SubtractDates "
        "SubtractTimestamps TimestampAdd TimestampDiff PreciseTimestampConversion ExtractIntervalYears Extract "
        "DatePart UnixTimestamp"
    ),
    "user functions": "PythonUDF ScalaUDF",
}
EXPRESSIONS = frozenset(name for names in _EXPRESSIONS.values() for name in names.split())
"""Expressions that depend only on their arguments; user functions unless marked as nondeterministic."""
_NOW = ("now", "today", "tomorrow", "yesterday")
"""Strings that Spark casts to the current time."""


def why_unrepeatable(plan: Sequence[Mapping[str, Any]], sources: Sequence[str]) -> str:
    """Return a short reason why repeated batches of a plan may differ, or an empty string if they cannot.

    Args:
        plan: operators as returned by ``toJSON`` of an analyzed plan.
        sources: names of streaming sources that split repeated batches into the same tasks.
    """
    for operator in plan:
        name = _simple_name(operator)
        if name not in OPERATORS:
            return f"it has the operator {name}"
        for expression in _expressions(operator):
            found = _simple_name(expression)
            if found not in EXPRESSIONS:
                return f"it has the expression {found}"
            if found in UDFS and expression.get("udfDeterministic") is not True:
                return f"it has the nondeterministic UDF {_udf_name(expression)}"
        if word := _clock_word(list(_expressions(operator))):
            return f"it casts {word!r} to the time of day"
    leaves = [operator for operator in plan if not operator.get("num-children")]
    if len(leaves) != 1 or _simple_name(leaves[0]) != SOURCE or leaves[0].get("sourceName") not in sources:
        return f"it does not read exactly one stream of {' or '.join(sources)}"
    return ""


def _simple_name(node: Mapping[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2].rstrip("$")


def _clock_word(expressions: Sequence[Mapping[str, Any]]) -> str:
    """Return a string literal that Spark may interpret as the current time, or an empty string."""
    if not any(_simple_name(one) == "Cast" and str(one.get("dataType"))[:4] in ("date", "time") for one in expressions):
        return ""
    texts = (str(one.get("value")) for one in expressions if _simple_name(one) == "Literal")
    return next((text for text in texts if text.strip().lower().startswith(_NOW)), "")


def _udf_name(expression: Mapping[str, Any]) -> str:
    return str(expression.get("name") or expression.get("udfName") or "")


def _expressions(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all nodes nested in the fields of an operator."""
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for child in children:
        if isinstance(child, Mapping) and "class" in child:
            yield child
        yield from _expressions(child)
