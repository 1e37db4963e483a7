//! What do expressions see, and what do they say when they fail?

use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ExecutionError, Value as Cel, functions};
use serde_json::Value;

use crate::schema::{Schema, Type};

/// A compiled expression.
pub type Program = Expression;

/// Variables on top of all functions of Kubernetes' CEL.
pub struct Scope<'a>(Context<'a>);

thread_local! {
    /// Over a hundred functions: too many to register for each rule.
    static FUNCTIONS: Context<'static> = all_functions();
    /// Without what is added here, which builds on it.
    static LIBRARY: Context<'static> = Context::default().with_all();
}

/// The names of types, which `type(x)` returns: it is compared as in `type(self) == int`.
pub const TYPE_NAMES: [&str; 10] =
    ["int", "uint", "double", "string", "bytes", "bool", "list", "map", "null_type", "optional_type"];

/// A message that an expression makes is no longer than this in Kubernetes; longer ones are left out.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// Calls `within` with no variables bound.
pub fn scope<T>(within: impl FnOnce(&mut Scope) -> T) -> T {
    FUNCTIONS.with(|functions| within(&mut Scope(functions.new_inner_scope())))
}

impl Scope<'_> {
    pub fn bind(&mut self, name: &str, value: Cel) {
        self.0.add_variable_from_value(name, value);
    }

    /// Err with the words of Kubernetes.
    pub fn run(&self, program: &Program) -> Result<Cel, String> {
        self.0.resolve(program).map_err(|error| error_text(&error))
    }

    /// What a messageExpression says, if that can be shown.
    pub fn text(&self, program: &Program) -> Option<String> {
        let Ok(Cel::String(text)) = self.run(program) else { return None };
        let shown = !text.trim().is_empty() && !text.contains('\n') && text.len() <= MESSAGE_BYTES_MAX;
        shown.then(|| text.trim().to_owned())
    }
}

fn error_text(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { function, .. } if TYPE_NAMES.contains(&function.as_str()) => {
            format!("type conversion error from 'string' to '{function}'")
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::NoSuchOverload
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. } => "no such overload".to_owned(),
        other => other.to_string(),
    }
}

/// Err with what the parser says.
pub fn program(expression: &str) -> Result<Program, String> {
    Parser::new().enable_optional_syntax(true).parse(expression).map_err(|errors| errors.to_string())
}

pub fn optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// A value whose schema says what it is: dates are dates, and names of fields that the language forbids are escaped.
pub fn typed(value: &Value, schema: &Schema) -> Cel {
    match value {
        Value::String(text) => formatted(text, schema.format.as_deref()),
        Value::Number(number) if schema.kind == Type::Number => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        Value::Array(list) => {
            let item = |one| schema.items.as_ref().map_or_else(|| untyped(one), |items| typed(one, items));
            Cel::List(Arc::new(list.iter().map(item).collect()))
        }
        Value::Object(fields) => map(fields.iter().map(|(key, one)| match (schema.properties.get(key), &schema.values) {
            (Some(schema), _) => (escape(key), typed(one, schema)),
            (None, Some(schema)) => (key.clone(), typed(one, schema)),
            (None, None) => (key.clone(), untyped(one)),
        })),
        Value::Null | Value::Bool(_) | Value::Number(_) => untyped(value),
    }
}

/// A value as it is written.
pub fn untyped(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(yes) => Cel::Bool(*yes),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Cel::Int(whole),
            None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(untyped).collect())),
        Value::Object(fields) => map(fields.iter().map(|(key, one)| (key.clone(), untyped(one)))),
    }
}

pub fn map(fields: impl Iterator<Item = (String, Cel)>) -> Cel {
    Cel::Map(Map { map: Arc::new(fields.map(|(key, value)| (Key::String(Arc::new(key)), value)).collect()) })
}

/// Names of fields as expressions write them: `a-b` is `a__dash__b`, and `namespace`, a word of the language,
/// `__namespace__`.
pub fn escape(name: &str) -> String {
    const RESERVED: [&str; 18] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    let escaped = name.replace("__", "__underscores__").replace('.', "__dot__");
    escaped.replace('-', "__dash__").replace('/', "__slash__")
}

fn formatted(text: &str, format: Option<&str>) -> Cel {
    let text = Arc::new(text.to_owned());
    let parsed = match format {
        Some("date-time") => functions::timestamp(text.clone()).ok(),
        Some("duration") => functions::duration(text.clone()).ok(),
        Some(_) | None => None,
    };
    parsed.unwrap_or(Cel::String(text))
}

fn all_functions() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function("string", |This(value): This<Cel>| string(value));
    context.add_function("type", |value: Cel| Arc::new(type_name(&value).to_owned()));
    for name in TYPE_NAMES {
        context.add_variable_from_value(name, Cel::String(Arc::new(name.to_owned())));
    }
    context
}

/// The library knows no text for booleans.
fn string(value: Cel) -> Result<Cel, ExecutionError> {
    if let Cel::Bool(yes) = value {
        return Ok(Cel::String(Arc::new(yes.to_string())));
    }
    LIBRARY.with(|library| {
        let mut scope = library.new_inner_scope();
        scope.add_variable_from_value("value", value);
        let call = Parser::new().parse("string(value)").expect("it is a constant and well-formed");
        scope.resolve(&call)
    })
}

fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::Bool(_) => "bool",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        _ => "optional_type",
    }
}
