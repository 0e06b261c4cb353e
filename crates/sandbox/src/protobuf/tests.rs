//! Tests with the output of Go's encoder, and with other input that its decoder accepts or rejects.
//!
//! `recorded.json` contains bodies that `kubectl create` sent, with the objects that it prints in a dry run, and
//! encodings by Go's types with their JSON. Nulls in objects are left out.

use serde_json::json;

use super::*;
use crate::kinds::Kinds;

/// Encodes a field that contains bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let named = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &named), field(2, raw)].concat()
}

#[test]
fn output_of_go_is_decoded() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    for row in recorded {
        let body = STANDARD.decode(row["body"].as_str().unwrap()).unwrap();
        assert_eq!(decode(&body).as_ref(), Ok(&row["object"]), "{}", row["from"]);
    }
}

#[test]
fn input_that_go_accepts_is_decoded() {
    let check = |kind: &str, raw: &[u8], expected: Value| {
        let mut object = decode(&envelope("v1", kind, raw)).unwrap();
        assert_eq!((object["apiVersion"].take(), object["kind"].take()), ("v1".into(), kind.into()));
        object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(object, expected);
    };
    check("ConfigMap", b"", json!({}));
    check("ConfigMap", &field(2, &field(1, b"a")), json!({"data": {"a": ""}}));
    check("ResourceQuota", &field(2, &field(1, &field(1, b"a"))), json!({"spec": {"hard": {"a": ""}}}));
    // An unknown field, and a field that occurs twice.
    let twice = [field(1, &field(1, b"a")), vec![0x7d, 1, 2, 3, 4], field(1, &field(3, b"b"))].concat();
    check("ConfigMap", &twice, json!({"metadata": {"name": "a", "namespace": "b"}}));
    // Packed integers.
    let packed = field(2, &field(14, &field(4, &[1, 0xac, 2])));
    check("Pod", &packed, json!({"spec": {"securityContext": {"supplementalGroups": [1, 300]}}}));
    check("DeleteOptions", &[8, 0], json!({"gracePeriodSeconds": 0}));
}

#[test]
fn invalid_bodies_are_rejected() {
    let check = |body: &[u8], code: u16, message: &str| {
        let error = decode(body).unwrap_err();
        assert_eq!((error.code.as_u16(), &*error.message), (code, message));
    };
    let unrecognized = |why: &str| format!("the object provided is unrecognized: {why}");
    let no_protobuf = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    check(b"{}", 400, &unrecognized(no_protobuf));
    check(b"k8s\0\xff", 400, &unrecognized("unexpected EOF"));
    check(b"k8s\0", 501, "the sandbox does not model protobuf bodies without a kind");
    let status = "the sandbox does not model protobuf bodies of kind Status in version v1";
    check(&envelope("v1", "Status", b""), 501, status);

    let check = |raw: &[u8], why: &str| {
        let message = format!("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: {why}");
        check(&envelope("v1", "ConfigMap", raw), 400, &message);
    };
    check(b"\x0a\x20a", "unexpected EOF");
    check(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "unexpected EOF");
    check(&[0xff; 11], "proto: integer overflow");
    check(b"\x08\x20", "metadata: proto: wrong wireType = 0");
    check(b"\x0d1234", "metadata: proto: wrong wireType = 5");
    check(b"\x0e", "proto: illegal wireType 6");
    let invalid = field(2, &[field(1, b"a"), field(2, b"\xff")].concat());
    check(&invalid, "data: invalid utf-8 sequence of 1 bytes from index 0");
    let no_time = field(1, &field(8, &[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]));
    assert!(decode(&envelope("v1", "ConfigMap", &no_time)).is_err());
}

#[test]
fn nesting_is_limited() {
    // `JSONSchemaProps.not`, nested.
    let nested = (0..DEEPEST + 2).fold(Vec::new(), |inner: Vec<u8>, _| {
        let length = [inner.len() as u8 | 0x80, (inner.len() >> 7) as u8];
        [&[0xe2, 1][..], &length, &inner].concat()
    });
    let schema = |bytes| message("apiextensions.k8s.io/v1.JSONSchemaProps", bytes, 0);
    assert!(schema(&nested).unwrap_err().ends_with("exceeded max depth"));
    assert!(schema(&nested[12..]).is_ok());
}

#[test]
fn the_table_is_complete() {
    for (version, kind) in Kinds::new().iter().map(|kind| (kind.stored_api_version(), kind.kind.clone())) {
        assert!(TABLE.contains_key(&*format!("{version}.{kind}")), "{version}.{kind}");
    }
    for field in TABLE.values().flat_map(|message| message.values()) {
        assert!(!matches!(&field.content, Type::Message(name) if !TABLE.contains_key(&**name)), "{}", field.name);
    }
}
