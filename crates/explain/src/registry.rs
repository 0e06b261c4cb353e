//! All rules. Their order does not matter, as a test checks.

use crate::{
    rule::Rule,
    rules::{
        abandoned, api_services, conversion, definitions, denied, dependents, evictions, finalizers, in_use,
        namespaces, not_deleting, oversized, owners, pods, protected, rate_limits, recreated, unreadable, unserved,
        webhooks,
    },
};

/// The rules.
pub(crate) const RULES: &[Rule] = &[
    Rule { name: "abandoned", judge: abandoned::judge },
    Rule { name: "api-services", judge: api_services::judge },
    Rule { name: "conversion", judge: conversion::judge },
    Rule { name: "definitions", judge: definitions::judge },
    Rule { name: "denied", judge: denied::judge },
    Rule { name: "dependents", judge: dependents::judge },
    Rule { name: "evictions", judge: evictions::judge },
    Rule { name: "finalizers", judge: finalizers::judge },
    Rule { name: "in-use", judge: in_use::judge },
    Rule { name: "namespaces", judge: namespaces::judge },
    Rule { name: "not-deleting", judge: not_deleting::judge },
    Rule { name: "oversized", judge: oversized::judge },
    Rule { name: "owners", judge: owners::judge },
    Rule { name: "pods", judge: pods::judge },
    Rule { name: "protected", judge: protected::judge },
    Rule { name: "rate-limits", judge: rate_limits::judge },
    Rule { name: "recreated", judge: recreated::judge },
    Rule { name: "unreadable", judge: unreadable::judge },
    Rule { name: "unserved", judge: unserved::judge },
    Rule { name: "webhooks", judge: webhooks::judge },
];
