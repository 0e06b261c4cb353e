//! Evaluation of CEL expressions in match conditions and policies.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use kube_cel::cel::{
    Context, ExecutionError, Value as Cel,
    objects::{Key, Map},
    parser::Expression,
};
use serde_json::{Value, json};

use super::{AdmissionRequest, language};
use crate::status::ApiError;

/// How many parsed expressions are cached.
const KEPT: usize = 1024;

/// The functions that expressions can call.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(language::functions);

/// The cache of parsed expressions.
static PARSED: LazyLock<Mutex<HashMap<String, Parsed>>> = LazyLock::new(Mutex::default);

type Parsed = Arc<Result<Expression, String>>;

/// Why an expression has no value.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    /// Whether the expression may have a value in Kubernetes.
    pub(super) not_modelled: bool,
}

impl Failure {
    fn not_modelled(what: String) -> Self {
        Self { message: what, not_modelled: true }
    }

    pub(super) fn into_error(self) -> ApiError {
        if self.not_modelled { ApiError::not_modelled(self.message) } else { ApiError::internal(self.message) }
    }
}

/// The variables that an expression can use.
pub(super) struct Scope {
    context: Context<'static>,
    /// The variables of the policy that could not be evaluated.
    failed: BTreeMap<String, Failure>,
}

impl Scope {
    /// Creates a scope with `object`, `oldObject` and `request`. All other variables are null.
    pub(super) fn new(request: &AdmissionRequest<'_>, version: &str) -> Self {
        let mut context = FUNCTIONS.new_inner_scope();
        context.add_variable_from_value("object", cel(request.object.unwrap_or(&Value::Null)));
        context.add_variable_from_value("oldObject", cel(request.old.unwrap_or(&Value::Null)));
        context.add_variable_from_value("request", cel(&request_variable(request, version)));
        context.add_variable_from_value("params", Cel::Null);
        context.add_variable_from_value("namespaceObject", Cel::Null);
        Self { context, failed: BTreeMap::new() }
    }

    pub(super) fn params(mut self, params: Option<&Value>) -> Self {
        self.context.add_variable_from_value("params", cel(params.unwrap_or(&Value::Null)));
        self
    }

    /// Sets `namespaceObject`, without the fields that policies cannot read.
    pub(super) fn namespace(mut self, mut namespace: Value) -> Self {
        if let Some(fields) = namespace.as_object_mut() {
            fields.retain(|field, _| matches!(field.as_str(), "metadata" | "spec" | "status"));
        }
        if let Some(metadata) = namespace["metadata"].as_object_mut() {
            metadata.retain(|field, _| !matches!(field.as_str(), "managedFields" | "ownerReferences"));
        }
        self.context.add_variable_from_value("namespaceObject", cel(&namespace));
        self
    }

    /// Evaluates the `variables` of a policy, each of which may use earlier ones. An error only affects expressions
    /// that use the variable.
    pub(super) fn variables(mut self, variables: &Value) -> Self {
        let mut values = HashMap::new();
        for variable in variables.as_array().into_iter().flatten() {
            let [name, expression] = ["name", "expression"].map(|field| variable[field].as_str().unwrap_or_default());
            self.context.add_variable_from_value("variables", map(values.clone()));
            match self.value(expression) {
                Ok(value) => {
                    values.insert(key(name), value);
                }
                Err(failure) => {
                    let message = format!("composited variable {name:?} fails to evaluate: {}", failure.message);
                    let message = if failure.not_modelled { failure.message } else { message };
                    self.failed.insert(name.to_owned(), Failure { message, ..failure });
                }
            }
        }
        self.context.add_variable_from_value("variables", map(values));
        self
    }

    /// Evaluates an expression.
    pub(super) fn evaluate(&self, expression: &str) -> Result<Cel, Failure> {
        self.value(expression).map_err(|failure| match failure.not_modelled {
            true => failure,
            false => Failure {
                message: format!("expression '{expression}' resulted in error: {}", failure.message),
                ..failure
            },
        })
    }

    fn value(&self, expression: &str) -> Result<Cel, Failure> {
        let unknown = |why: &str| Failure::not_modelled(format!("the expression '{expression}': {why}"));
        let parsed = parse(expression);
        let tree = parsed.as_ref().as_ref().map_err(|why| unknown(why))?;
        let references = tree.references();
        if references.has_variable("authorizer") {
            return Err(unknown("it uses the variable authorizer"));
        }
        self.context.resolve(tree).map_err(|error| match error {
            ExecutionError::UndeclaredReference(name) => unknown(&format!("{name} is unknown")),
            ExecutionError::NoSuchKey(name) if references.has_variable("variables") => {
                let failed = self.failed.get(name.as_str()).cloned();
                failed.unwrap_or_else(|| Failure { message: format!("no such key: {name}"), not_modelled: false })
            }
            error => Failure { message: text(&error), not_modelled: false },
        })
    }
}

/// Returns whether all conditions are true. A false condition takes precedence over errors in others.
pub(super) fn conditions(scope: &Scope, conditions: &Value) -> Result<bool, Failure> {
    let mut failures: Vec<Failure> = Vec::new();
    for condition in conditions.as_array().into_iter().flatten() {
        match scope.evaluate(condition["expression"].as_str().unwrap_or_default()) {
            Ok(Cel::Bool(false)) => return Ok(false),
            Ok(_) => {}
            Err(failure) => failures.push(failure),
        }
    }
    if let Some(unknown) = failures.iter().position(|failure| failure.not_modelled) {
        return Err(failures.swap_remove(unknown));
    }
    let messages: Vec<_> = failures.into_iter().map(|failure| failure.message).collect();
    match messages.as_slice() {
        [] => Ok(true),
        [message] => Err(Failure { message: message.clone(), not_modelled: false }),
        several => Err(Failure { message: format!("[{}]", several.join(", ")), not_modelled: false }),
    }
}

fn parse(expression: &str) -> Parsed {
    let mut kept = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(parsed) = kept.get(expression) {
        return Arc::clone(parsed);
    }
    let parsed = Arc::new(language::parse(expression));
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(expression.to_owned(), Arc::clone(&parsed));
    parsed
}

/// Returns the text of an error as Kubernetes' evaluator writes it.
fn text(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(name) => format!("no such key: {name}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::NoSuchOverload
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnexpectedType { .. } => "no such overload".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// Returns the variable `request`, without empty fields.
pub(super) fn request_variable(request: &AdmissionRequest<'_>, version: &str) -> Value {
    let group = request.kind.group();
    let kind = |version: &str| match request.subresource {
        Some("scale") => json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
        Some("binding") => json!({"group": "", "version": "v1", "kind": "Binding"}),
        Some("eviction") => json!({"group": "policy", "version": "v1", "kind": "Eviction"}),
        Some("token") => json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}),
        _ => json!({"group": group, "version": version, "kind": request.kind.kind}),
    };
    let resource = |version: &str| json!({"group": group, "version": version, "resource": &*request.kind.id.plural});
    let mut variable = json!({
        "uid": "", "operation": request.operation.as_str(), "dryRun": request.dry_run,
        "kind": kind(version), "resource": resource(version),
        "requestKind": kind(request.version), "requestResource": resource(request.version),
        "userInfo": {"username": request.user.name, "groups": request.user.groups},
    });
    let texts = [
        ("name", request.name),
        ("namespace", request.scope()),
        ("subResource", request.subresource()),
        ("requestSubResource", request.subresource()),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        variable[field] = text.into();
    }
    if !request.options.is_null() {
        variable["options"] = request.options.clone();
    }
    variable
}

/// Converts JSON to CEL.
fn cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Cel::Int(number),
            (None, Some(number)) => Cel::UInt(number),
            (None, None) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(cel).collect())),
        Value::Object(fields) => map(fields.iter().map(|(name, value)| (key(name), cel(value))).collect()),
    }
}

fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

fn map(fields: HashMap<Key, Cel>) -> Cel {
    Cel::Map(Map { map: Arc::new(fields) })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Operation, tests::configmaps},
        *,
    };
    use crate::call::User;

    fn scope<R>(use_it: impl FnOnce(Scope) -> R) -> R {
        let (user, kind) = (User::new("jane", ["g"]), configmaps());
        let object = json!({
            "metadata": {"name": "a", "namespace": "shop", "labels": {"app.kubernetes.io/name": "x"}},
            "data": {"k": "v", "zero": "0"}, "count": 3, "ratio": 0.5,
        });
        let request = AdmissionRequest {
            operation: Operation::Create,
            user: &user,
            kind: &kind,
            version: "v1",
            subresource: None,
            namespace: "shop",
            name: "a",
            object: Some(&object),
            old: None,
            options: &json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
            dry_run: true,
        };
        use_it(Scope::new(&request, "v1"))
    }

    fn holds(expression: &str) {
        let found = scope(|scope| scope.evaluate(expression));
        assert!(matches!(found, Ok(Cel::Bool(true))), "{expression}: {found:?}");
    }

    fn fails(expression: &str, why: &str) {
        let failure = scope(|scope| scope.evaluate(expression)).expect_err(expression);
        let expected = format!("expression '{expression}' resulted in error: {why}");
        assert_eq!((failure.message, failure.not_modelled), (expected, false));
    }

    fn not_modelled(expression: &str) {
        let failure = scope(|scope| scope.evaluate(expression)).expect_err(expression);
        assert!(failure.not_modelled, "{expression}: {}", failure.message);
    }

    #[test]
    fn requests_are_described() {
        holds("object.metadata.name == 'a' && object.metadata.namespace == 'shop'");
        holds("object.metadata.labels['app.kubernetes.io/name'] == 'x'");
        holds("oldObject == null && params == null && namespaceObject == null");
        holds("object.count > 2 && object.ratio < 1.0");
        holds("request.operation + request.kind.kind + request.resource.resource == 'CREATEConfigMapconfigmaps'");
        holds("request.dryRun && request.name == 'a' && request.namespace == 'shop'");
        holds("request.userInfo.username == 'jane' && 'g' in request.userInfo.groups");
        holds("request.options.kind == 'CreateOptions' && !has(request.subResource)");
        holds("!has(object.spec) && object.data.all(k, k != 'q')");
        holds("object.?spec.?x.orValue('none') == 'none' && object.?data.?k.orValue('none') == 'v'");
        holds("object.metadata.?annotations[?'a/b'].orValue('') == '' && !object.?spec.hasValue()");
        holds("has(object.metadata.labels) && !has(object.data.nope) && object.?metadata.labels.hasValue()");
        holds("object.count == 3 && object.count >= 2.5 && object.ratio == 0.5 && object.count == 3.0");
        holds("timestamp('2026-01-01T00:00:00Z') < timestamp('2027-01-01T00:00:00Z')");
        holds("object.data.exists(k, object.data[k] == 'v') && object.data.map(k, k).size() == 2");
        holds("'%s-%d'.format(['a', 1]) == 'a-1' && ['b', 'a'].isSorted() == false");
        holds("object.metadata.labels.exists_one(k, k.contains('/')) && object.data.k in ['v', 'w']");
        holds("(has(object.spec) && object.spec.x == 1) || !has(object.spec)");
        holds("(object.count == 3 ? 'a' : 'b') == 'a' && dyn(1) == 1 && string(1) == '1'");
        holds("object.metadata.name.find('[a-z]+') == 'a' && !isURL('x') && lists.range(3) == [0, 1, 2]");
        holds("object.data.k.matches('^v$') && object.data.k.startsWith('v') && size(object.data) == 2");
        holds("object.nope.x == 1 || true");
        holds("quantity('1Gi').isGreaterThan(quantity('500Mi')) && 'a,b'.split(',').size() == 2");
    }

    #[test]
    fn errors_have_the_texts_of_kubernetes() {
        fails("object.spec.x == 1", "no such key: spec");
        fails("object.metadata.__namespace__ == 'x'", "no such key: __namespace__");
        fails("object.data.k > 1", "no such overload");
        fails("[1,2][5] == 1", "index out of bounds: 5");
        fails("1 / int(object.data.zero) == 1", "division by zero");
    }

    #[test]
    fn unknown_expressions_are_not_modelled() {
        not_modelled("authorizer.path('/x').check('get').allowed()");
        not_modelled("object.metadata.name ==");
        not_modelled("nobody('x')");
        not_modelled("unheard == 1");
        not_modelled("type(object.count) == int");
        not_modelled("cel.bind(x, 1, x == 1)");
    }

    #[test]
    fn variables_build_on_each_other() {
        let variables = json!([
            {"name": "x", "expression": "object.data.k"}, {"name": "y", "expression": "variables.x + '!'"},
            {"name": "bad", "expression": "object.nope.y"}, {"name": "worse", "expression": "variables.bad + 1"},
            {"name": "unknown", "expression": "authorizer"},
        ]);
        scope(|scope| {
            let scope = scope.variables(&variables);
            assert!(matches!(scope.evaluate("variables.y == 'v!'"), Ok(Cel::Bool(true))));
            let failure = scope.evaluate("variables.worse == 1").expect_err("no value");
            let expected = "expression 'variables.worse == 1' resulted in error: composited variable \"worse\" fails \
                            to evaluate: composited variable \"bad\" fails to evaluate: no such key: nope";
            assert_eq!(failure.message, expected);
            assert!(scope.evaluate("variables.unknown == 1").expect_err("no value").not_modelled);
        });
    }

    #[test]
    fn policies_can_read_part_of_the_namespace() {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "shop", "labels": {"team": "a"}, "managedFields": []},
        });
        scope(|scope| {
            let scope = scope.namespace(namespace).params(Some(&json!({"max": 3})));
            let expression = "namespaceObject.metadata.labels.team == 'a' && !has(namespaceObject.kind) && \
                              !has(namespaceObject.metadata.managedFields) && params.max == 3";
            assert!(matches!(scope.evaluate(expression), Ok(Cel::Bool(true))));
        });
    }
}
