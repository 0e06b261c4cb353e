//! Kubernetes' dialect of CEL, where the evaluator lacks something or behaves differently.

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ResolveResult, Value,
        common::{
            ast::{CallExpr, EntryExpr, Expr, IdedEntryExpr, LiteralValue, SelectExpr, operators},
            types::CelString,
        },
        objects::OptionalValue,
        parser::{Expression, Parser},
    },
};

/// Equality that compares numbers of different types by value.
const EQUAL: &str = "@equal";
const NOT_EQUAL: &str = "@not_equal";

/// Returns a context with the functions of Kubernetes.
pub(super) fn functions() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function("dyn", |value: Value| -> ResolveResult { Ok(value) });
    context.add_function(EQUAL, |one: Value, other: Value| equal(&one, &other));
    context.add_function(NOT_EQUAL, |one: Value, other: Value| !equal(&one, &other));
    context
}

/// Parses an expression.
pub(super) fn parse(expression: &str) -> Result<Expression, String> {
    let mut tree =
        Parser::default().enable_optional_syntax(true).parse(expression).map_err(|error| error.to_string())?;
    rewrite(&mut tree);
    Ok(tree)
}

/// Rewrites what the evaluator does wrong: `a.?b`, which fails if `b` is missing, and `.b` of an optional value become
/// `a[?'b']`, and equality becomes our own.
fn rewrite(tree: &mut Expression) {
    match &mut tree.expr {
        Expr::Call(call) => {
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(rewrite);
            let name = match call.func_name.as_str() {
                operators::OPT_SELECT => operators::OPT_INDEX,
                operators::EQUALS => EQUAL,
                operators::NOT_EQUALS => NOT_EQUAL,
                _ => return,
            };
            name.clone_into(&mut call.func_name);
        }
        Expr::Select(select) => {
            rewrite(&mut select.operand);
            if is_optional(&select.operand) {
                tree.expr = optional_select(std::mem::take(select));
            }
        }
        Expr::Comprehension(parts) => {
            let before = [&mut parts.iter_range, &mut parts.accu_init, &mut parts.loop_cond];
            before.into_iter().chain([&mut parts.loop_step, &mut parts.result]).for_each(rewrite);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(rewrite),
        Expr::Map(map) => map.entries.iter_mut().for_each(rewrite_entry),
        Expr::Struct(fields) => fields.entries.iter_mut().for_each(rewrite_entry),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn rewrite_entry(entry: &mut IdedEntryExpr) {
    match &mut entry.expr {
        EntryExpr::StructField(field) => rewrite(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            rewrite(&mut entry.key);
            rewrite(&mut entry.value);
        }
    }
}

/// Returns whether a rewritten expression is an optional selection, or a selection from one.
fn is_optional(tree: &Expression) -> bool {
    let Expr::Call(call) = &tree.expr else { return false };
    match call.func_name.as_str() {
        operators::OPT_INDEX => true,
        operators::INDEX => call.args.first().is_some_and(is_optional),
        _ => false,
    }
}

/// Rewrites `.b` of an optional value, or `has()` of it.
fn optional_select(select: SelectExpr) -> Expr {
    let field = Expr::Literal(LiteralValue::String(CelString::from(select.field)));
    let args = vec![*select.operand, Expression { id: 0, expr: field }];
    let call = CallExpr { func_name: operators::OPT_INDEX.to_owned(), target: None, args };
    if !select.test {
        return Expr::Call(call);
    }
    let target = Some(Box::new(Expression { id: 0, expr: Expr::Call(call) }));
    Expr::Call(CallExpr { func_name: "hasValue".to_owned(), target, args: Vec::new() })
}

fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| equal(one, other))
        }
        (Value::Map(one), Value::Map(other)) => {
            let same = |(key, value)| other.map.get(key).is_some_and(|other| equal(value, other));
            one.map.len() == other.map.len() && one.map.iter().all(same)
        }
        (Value::Opaque(_), Value::Opaque(_)) => {
            match (<&OptionalValue>::try_from(one), <&OptionalValue>::try_from(other)) {
                (Ok(one), Ok(other)) => match (one.value(), other.value()) {
                    (Some(one), Some(other)) => equal(one, other),
                    (one, other) => one.is_none() && other.is_none(),
                },
                _ => one == other,
            }
        }
        // Numbers of different types can be equal, although they are not the same value.
        (Value::Int(_) | Value::UInt(_) | Value::Float(_), Value::Int(_) | Value::UInt(_) | Value::Float(_)) => {
            one.partial_cmp(other) == Some(std::cmp::Ordering::Equal)
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) {
        let mut context = functions();
        let fields = std::collections::HashMap::from([("b".to_owned(), Value::Int(3))]);
        context.add_variable_from_value("a", fields);
        let found = parse(expression).map(|tree| context.resolve(&tree));
        assert!(matches!(found, Ok(Ok(Value::Bool(true)))), "{expression}: {found:?}");
    }

    #[test]
    fn numbers_of_different_types_are_equal() {
        check("a.b == 3 && a.b == 3.0 && a.b == 3u && 3.0 == a.b && a.b != 3.5 && a.b != '3' && dyn(1) == 1.0");
        check("[1, 2.0] == [1.0, 2] && {'x': 1} == {'x': 1.0} && [1] != [1, 1] && {'x': 1} != {'y': 1}");
        check("[1, 2].all(x, x == 1.0 || x == 2u) && null == null && 'x' != null && true == true");
    }

    #[test]
    fn optionals_are_chained() {
        check(
            "a.?b.orValue(0) == 3 && a.?c.orValue(0) == 0 && a.?c.d.?e.orValue(0) == 0 && a[?'c'].d[0].orValue(1) == 1",
        );
        check("!a.?c.hasValue() && a.?b.hasValue() && !has(a.?c.d) && !a.?c['x'].hasValue()");
        check("a.?b == optional.of(3) && a.?c == optional.none() && a.?b != optional.none()");
        check("[1].map(x, a.?b.orValue(x)) == [3] && {'k': a.?c.orValue('n')}.k == 'n'");
    }

    #[test]
    fn quantities_are_compared() {
        check("quantity('1Gi') == quantity('1024Mi') && quantity('1') != quantity('2')");
    }
}
