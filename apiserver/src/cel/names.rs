//! Does an expression speak of things that exist?
//!
//! Only names are checked: variables, functions, and fields where a schema says which there are. Whether types fit shows
//! when the expression is evaluated.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};

use super::value::{TYPE_NAMES, escape};
use crate::schema::{Schema, Type};

/// What an expression may name.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    pub variables: &'a [&'a str],
    /// Of `self` and, where there is one, `oldSelf`.
    pub schema: Option<&'a Schema>,
    /// The fields of these variables are known: (variable, fields).
    pub fields: &'a [(&'a str, &'a [&'a str])],
}

/// The first thing that does not exist, in Kubernetes' words.
pub fn unknown(expression: &IdedExpr, names: &Names) -> Option<String> {
    search(expression, names, &mut Vec::new())
}

/// The name of an expression's type, where it is known to be another than the wanted one.
pub fn other_than(expression: &IdedExpr, wanted: Type, names: &Names) -> Option<&'static str> {
    let kind = match &expression.expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Type::Boolean,
        Expr::Literal(LiteralValue::String(_)) => Type::String,
        Expr::Literal(LiteralValue::Int(_) | LiteralValue::UInt(_)) => Type::Integer,
        Expr::Literal(LiteralValue::Double(_)) => Type::Number,
        Expr::List(_) => Type::Array,
        Expr::Map(_) => Type::Object,
        Expr::Select(select) if select.test => Type::Boolean,
        Expr::Call(call) => match call.func_name.as_str() {
            "_&&_" | "_||_" | "!_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in" => Type::Boolean,
            "size" => Type::Integer,
            _ => return None,
        },
        Expr::Ident(_) | Expr::Select(_) => schema_of(expression, names)?.kind,
        Expr::Literal(_) | Expr::Unspecified | Expr::Comprehension(_) | Expr::Struct(_) => return None,
    };
    let name = match kind {
        Type::Any | Type::IntOrString | Type::Quantity => return None,
        Type::Object => "map",
        Type::Array => "list",
        Type::String => "string",
        Type::Integer => "int",
        Type::Number => "double",
        Type::Boolean => "bool",
    };
    (kind != wanted).then_some(name)
}

fn search<'a>(expression: &'a IdedExpr, names: &Names, local: &mut Vec<&'a str>) -> Option<String> {
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => None,
        Expr::Ident(name) => {
            let name = name.as_str();
            let known = name.starts_with('@') || local.contains(&name) || names.variables.contains(&name);
            (!known && !TYPE_NAMES.contains(&name)).then(|| undeclared(name))
        }
        Expr::Select(select) => {
            search(&select.operand, names, local).or_else(|| undefined(&select.operand, &select.field, names))
        }
        Expr::Call(call) => {
            let qualified = match call.target.as_deref() {
                Some(IdedExpr { expr: Expr::Ident(space), .. }) => Some(format!("{space}.{}", call.func_name)),
                Some(_) | None => None,
            };
            let in_space = qualified.is_some_and(|name| FUNCTIONS.contains(&name.as_str()));
            let is_operator = !call.func_name.starts_with(|first: char| first.is_ascii_alphabetic());
            if !in_space && !is_operator && !FUNCTIONS.contains(&call.func_name.as_str()) {
                return Some(undeclared(&call.func_name));
            }
            let target = call.target.as_deref().filter(|_| !in_space).and_then(|target| search(target, names, local));
            target.or_else(|| call.args.iter().find_map(|one| search(one, names, local)))
        }
        Expr::List(list) => list.elements.iter().find_map(|one| search(one, names, local)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::StructField(field) => search(&field.value, names, local),
            EntryExpr::MapEntry(entry) => search(&entry.key, names, local).or_else(|| search(&entry.value, names, local)),
        }),
        Expr::Struct(made) => Some(undeclared(&made.type_name)),
        Expr::Comprehension(loops) => {
            let outside = search(&loops.iter_range, names, local).or_else(|| search(&loops.accu_init, names, local));
            if outside.is_some() {
                return outside;
            }
            let outer = local.len();
            local.extend([loops.iter_var.as_str(), loops.accu_var.as_str()]);
            local.extend(loops.iter_var2.as_deref());
            let inside = [&loops.loop_cond, &loops.loop_step, &loops.result];
            let found = inside.into_iter().find_map(|one| search(one, names, local));
            local.truncate(outer);
            found
        }
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

fn undefined(operand: &IdedExpr, field: &str, names: &Names) -> Option<String> {
    if let Expr::Ident(variable) = &operand.expr
        && let Some((_, fields)) = names.fields.iter().find(|(name, _)| name == variable)
    {
        return (!fields.contains(&field)).then(|| format!("undefined field '{field}'"));
    }
    let schema = schema_of(operand, names)?;
    // Every object of the API has these, whatever its schema says.
    let is_root = names.schema.is_some_and(|root| std::ptr::eq(root, schema)) || schema.embedded_resource;
    let always = is_root && ["apiVersion", "kind", "metadata"].contains(&field);
    let is_closed = schema.kind == Type::Object && schema.values.is_none();
    (is_closed && !always && find(schema, field).is_none()).then(|| format!("undefined field '{field}'"))
}

fn schema_of<'a>(expression: &IdedExpr, names: &Names<'a>) -> Option<&'a Schema> {
    match &expression.expr {
        Expr::Ident(name) if name == "self" => names.schema,
        Expr::Select(select) if !select.test => find(schema_of(&select.operand, names)?, &select.field),
        _ => None,
    }
}

fn find<'a>(schema: &'a Schema, field: &str) -> Option<&'a Schema> {
    let property = schema.properties.iter().find(|(name, _)| escape(name) == field).map(|(_, schema)| schema);
    property.or(schema.values.as_ref()).map(AsRef::as_ref)
}

/// What the language and Kubernetes' libraries offer.
const FUNCTIONS: &[&str] = &[
    "add",
    "asApproximateFloat",
    "asInteger",
    "base64.decode",
    "base64.encode",
    "bytes",
    "charAt",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "distinct",
    "double",
    "duration",
    "endsWith",
    "family",
    "find",
    "findAll",
    "first",
    "flatten",
    "format",
    "format.byte",
    "format.date",
    "format.datetime",
    "format.dns1035Label",
    "format.dns1035LabelPrefix",
    "format.dns1123Label",
    "format.dns1123LabelPrefix",
    "format.dns1123Subdomain",
    "format.dns1123SubdomainPrefix",
    "format.labelValue",
    "format.named",
    "format.qualifiedName",
    "format.uri",
    "format.uuid",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "hasValue",
    "indexOf",
    "int",
    "ip",
    "ip.isCanonical",
    "isCIDR",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "jsonpatch.escapeKey",
    "last",
    "lastIndexOf",
    "lists.range",
    "lowerAscii",
    "major",
    "masked",
    "matches",
    "math.abs",
    "math.bitAnd",
    "math.bitNot",
    "math.bitOr",
    "math.bitShiftLeft",
    "math.bitShiftRight",
    "math.bitXor",
    "math.ceil",
    "math.floor",
    "math.greatest",
    "math.isFinite",
    "math.isInf",
    "math.isNaN",
    "math.least",
    "math.round",
    "math.sign",
    "math.sqrt",
    "math.trunc",
    "max",
    "min",
    "minor",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "or",
    "orValue",
    "patch",
    "prefixLength",
    "quantity",
    "replace",
    "reverse",
    "semver",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "sign",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "string",
    "strings.quote",
    "sub",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "url",
    "validate",
    "value",
];
