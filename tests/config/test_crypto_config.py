"""`cryptoConfig`: what is taken, what is refused by name, and what a record has of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from magnetar.config.connector_conversion import check_sink, check_source, read_sink_config, read_source_config
from magnetar.config.connector_conversion import to_details as connector_details
from magnetar.config.conversion import from_details, runtime_options, to_details
from magnetar.config.crypto_config import CONSUMER_ACTIONS, PRODUCER_ACTIONS, CryptoConfig
from magnetar.config.function_config import ENCRYPTION_MARK, ConsumerSpec, ProducerSpec
from magnetar.config.rules import with_defaults
from magnetar.errors import InvalidConfig

from tests.config.test_rules import answer, refusal, registered

READER = "pulsar.CryptoKeyReader"
PATHS = {"public_key_path": "/keys/public.pem", "private_key_path": "/keys/private.pem"}
WHOLE = {"cryptoKeyReaderClassName": READER, "cryptoKeyReaderConfig": PATHS, "encryptionKeys": ["k"]}


def test_a_record_has_pulsars_fields_and_get_answers_from_them() -> None:
    given = WHOLE | {"consumerCryptoFailureAction": "DISCARD", "producerCryptoFailureAction": "SEND"}
    details = to_details(registered(inputSpecs={"in": {"cryptoConfig": given}}, producerConfig={"cryptoConfig": given}))
    assert MessageToDict(details.sink.producerSpec.cryptoSpec) == {
        "cryptoKeyReaderClassName": READER,
        "cryptoKeyReaderConfig": json.dumps(PATHS, separators=(",", ":")),
        "producerEncryptionKeyName": ["k"],
        "producerCryptoFailureAction": "SEND",
        "consumerCryptoFailureAction": "DISCARD",
    }
    assert details.source.inputSpecs["in"].cryptoSpec == details.sink.producerSpec.cryptoSpec
    shown: Any = answer(from_details(details))
    assert shown["producerConfig"]["cryptoConfig"] == given
    assert shown["inputSpecs"]["in"]["cryptoConfig"] == given


@pytest.mark.parametrize(
    "fields", [{"inputSpecs": {"in": {"cryptoConfig": WHOLE}}}, {"producerConfig": {"cryptoConfig": WHOLE}}]
)
@pytest.mark.parametrize("runtime", [None, "thread"])
def test_a_record_with_keys_is_marked_so_that_versions_that_know_none_refuse_it(
    fields: dict[str, Any], runtime: str | None
) -> None:
    details = to_details(registered(runtimeEnv=runtime, **fields))
    said = json.loads(details.customRuntimeOptions)
    assert said.pop(ENCRYPTION_MARK) is True
    # What every version that has landed does with a name that it does not know, before it starts an instance.
    known = (
        "runtimeEnv",
        "minPartitions",
        "maxPendingAsyncRequests",
        "exposePulsarAdminClientEnabled",
        "runTimeLimitMs",
    )
    assert ENCRYPTION_MARK not in known
    assert said == ({"runtimeEnv": runtime} if runtime else {})
    assert runtime_options(details.customRuntimeOptions) == ({"runtime_env": runtime} if runtime else {})
    assert ENCRYPTION_MARK not in to_details(registered(runtimeEnv=runtime)).customRuntimeOptions
    # Sent back by Pulsar's tools, as they do with all that they have got, it changes nothing.
    again = registered(customRuntimeOptions=details.customRuntimeOptions, **fields)
    assert to_details(again) == details


def test_a_mark_that_says_no_is_refused() -> None:
    text = refusal(customRuntimeOptions=json.dumps({ENCRYPTION_MARK: False}))
    assert text == f"customRuntimeOptions.{ENCRYPTION_MARK} is derived from cryptoConfig: remove this field"


def test_records_of_sources_and_sinks_are_marked_too() -> None:
    source = {"tenant": "t", "namespace": "n", "name": "s", "topicName": "out", "archive": "builtin://pulsar"}
    config = with_defaults(read_source_config(source | {"producerConfig": {"cryptoConfig": WHOLE}}))
    check_source(config)
    assert json.loads(connector_details(config).customRuntimeOptions) == {ENCRYPTION_MARK: True}
    sink = {"tenant": "t", "namespace": "n", "name": "s", "archive": "builtin://pulsar"}
    reading = with_defaults(read_sink_config(sink | {"inputSpecs": {"in": {"cryptoConfig": WHOLE}}}))
    check_sink(reading)
    assert json.loads(connector_details(reading).customRuntimeOptions) == {ENCRYPTION_MARK: True}
    with pytest.raises(InvalidConfig, match="Must provide encryption key name for crypto key reader: producerConfig"):
        check_source(
            with_defaults(
                read_source_config(source | {"producerConfig": {"cryptoConfig": WHOLE | {"encryptionKeys": []}}})
            )
        )


@pytest.mark.parametrize(
    ("where", "change", "text"),
    [
        ("in", {"cryptoKeyReaderClassName": None}, "CryptoKeyReader class name required: inputSpecs[in].cryptoConfig."),
        ("out", {"cryptoKeyReaderClassName": ""}, "CryptoKeyReader class name required: producerConfig.cryptoConfig."),
        ("out", {"encryptionKeys": None}, "Must provide encryption key name for crypto key reader: producerConfig."),
        (
            "out",
            {"encryptionKeys": [""]},
            "invalid producerConfig.cryptoConfig.encryptionKeys: expected at most 100 names, none of them emp",
        ),
        (
            "out",
            {"encryptionKeys": ["k"] * 101},
            "invalid producerConfig.cryptoConfig.encryptionKeys: expected at most 100 names",
        ),
        ("in", {"consumerCryptoFailureAction": "SEND"}, "'SEND': expected one of FAIL, DISCARD, CONSUME"),
        ("out", {"producerCryptoFailureAction": "DISCARD"}, "'DISCARD': expected one of FAIL, SEND"),
        (
            "in",
            {"cryptoKeyReaderClassName": "Reader"},
            'invalid class "Reader": expected module.Class or one of pulsar.CryptoKey',
        ),
        (
            "in",
            {"cryptoKeyReaderConfig": {"public": "x"}},
            f'{READER} does not support "public": expected public_key_path, private',
        ),
        ("in", {"cryptoKeyReaderConfig": {"private_key_path": 7}}, "private_key_path: must be a string"),
        (
            "in",
            {"cryptoKeyReaderConfig": {"public_key_path": "/a"}},
            f"{READER} has no private key: set private_key_path",
        ),
        (
            "out",
            {"cryptoKeyReaderConfig": {"private_key_path": "/a"}},
            f"{READER} has no public key: set public_key_path",
        ),
        (
            "in",
            {
                "cryptoKeyReaderClassName": "magnetar.client.NamedKeyReader",
                "cryptoKeyReaderConfig": {"privateKeys": {"k": "data:application/x-pem-file;base64,AAAA"}},
            },
            "cryptoKeyReaderConfig.privateKeys: a private key would be visible to all users",
        ),
        ("in", {"cryptoKeyReader": "x"}, "unknown field cryptoKeyReader: did you mean cryptoKeyReaderC"),
    ],
)
def test_what_finds_no_keys_or_would_show_them_is_refused(where: str, change: dict[str, Any], text: str) -> None:
    crypto = {"cryptoConfig": WHOLE | change}
    said = refusal(**({"inputSpecs": {"in": crypto}} if where == "in" else {"producerConfig": crypto}))
    assert text in said


def test_runs_of_spark_refuse_keys_by_name() -> None:
    for fields in ({"inputSpecs": {"in": {"cryptoConfig": WHOLE}}}, {"producerConfig": {"cryptoConfig": WHOLE}}):
        assert "cryptoConfig: Spark runs do not support" in refusal(runtimeEnv="spark", **fields)


def test_inputs_that_encrypt_letters_differently_are_refused() -> None:
    other = WHOLE | {"encryptionKeys": ["other"]}
    text = refusal(inputSpecs={"a": {"cryptoConfig": WHOLE}, "b": {"cryptoConfig": other}})
    assert text.startswith("inputSpecs[…].cryptoConfig: the encryptionKeys of a and b differ")
    registered(inputSpecs={"a": {"cryptoConfig": WHOLE}, "b": {"cryptoConfig": WHOLE}})


configs = st.builds(
    CryptoConfig,
    key_reader=st.just("user.Reader"),
    key_reader_config=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1),
    encryption_keys=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3).map(tuple),
    producer_action=st.sampled_from(PRODUCER_ACTIONS),
    consumer_action=st.sampled_from(CONSUMER_ACTIONS),
)


@given(configs, configs)
def test_every_config_comes_back_from_its_record(reading: CryptoConfig, writing: CryptoConfig) -> None:
    config = replace(
        registered(),
        input_specs={"in": ConsumerSpec(crypto_config=reading)},
        producer=ProducerSpec(crypto_config=writing),
    )
    back = from_details(to_details(config))
    assert back.input_specs["in"].crypto_config == reading
    assert back.producer is not None
    assert back.producer.crypto_config == writing
