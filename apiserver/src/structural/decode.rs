//! Does each value have the type that its field has in Kubernetes' own Go code?

use serde_json::Value;

use crate::json::json_type;
use crate::schema::{Schema, Type};
use crate::structural::go_time;
use crate::structural::prune::resolve;

/// Of custom kinds only the metadata, their own and that of embedded objects, has Go types. The message is that of
/// Kubernetes' decoder (`Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal string
/// into Go struct field ...`), about the first wrong value.
pub fn decode(object: &Value, schema: &Schema, api_version: &str, kind: &str) -> Result<(), String> {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let judged = match schema.checks {
        None => Walk::new(schema, kind).judge(object, schema),
        Some(_) => custom(object, schema, ""),
    };
    judged.map_err(|fault| format!("{kind} in version {version:?} cannot be handled as a {kind}: {fault}"))
}

fn custom(value: &Value, schema: &Schema, path: &str) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let Some(field) = schema.field(name) else { continue };
                let is_resource = path.is_empty() || schema.embedded_resource;
                match name.as_str() {
                    "apiVersion" | "kind" if is_resource && !value.is_string() => {
                        return Err(format!("{below}: Invalid value: {value}: must be a string"));
                    }
                    "metadata" if is_resource => {
                        Walk::new(field, "").judge(value, field).map_err(|fault| match path {
                            "" => fault,
                            _ => format!("{below}: Invalid value: {value}: {fault}"),
                        })?;
                    }
                    _ => custom(value, field, &below)?,
                }
            }
            Ok(())
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return Ok(()) };
            let mut numbered = items.iter().enumerate();
            numbered.try_for_each(|(index, item)| custom(item, schema, &format!("{path}[{index}]")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Where the decoder is: in a field of a struct, by the names of the fields above it.
struct Walk<'a> {
    around: Vec<&'a Schema>,
    /// The struct whose field is read, as `PodSpec`; empty outside of any.
    holder: String,
    path: Vec<String>,
    /// The first wrong type. Go reads on behind it, and what it cannot parse at all (a time, a quantity) goes first.
    wrong: Option<String>,
}

impl<'a> Walk<'a> {
    fn new(schema: &'a Schema, holder: &str) -> Walk<'a> {
        Walk { around: vec![schema], holder: holder.to_owned(), path: Vec::new(), wrong: None }
    }

    fn judge(mut self, value: &Value, schema: &'a Schema) -> Result<(), String> {
        self.value(value, schema)?;
        self.wrong.map_or(Ok(()), Err)
    }

    fn value(&mut self, value: &Value, schema: &'a Schema) -> Result<(), String> {
        let schema = resolve(schema, &self.around);
        if value.is_null() {
            return Ok(());
        }
        match schema.kind {
            Type::Any => Ok(()),
            Type::Object if is_raw(schema) => Ok(()),
            Type::Object => self.object(value, schema),
            Type::Array => match value {
                Value::Array(items) => self.items(items, schema),
                other => self.wrong(other, schema),
            },
            Type::String => self.text(value, schema),
            Type::Boolean if value.is_boolean() => Ok(()),
            Type::Number if value.is_number() => Ok(()),
            Type::Boolean | Type::Number => self.wrong(value, schema),
            Type::Integer => self.integer(value, schema),
            Type::IntOrString if value.is_string() => Ok(()),
            Type::IntOrString => self.integer(value, schema),
            Type::Quantity => quantity(value),
        }
    }

    fn object(&mut self, value: &Value, schema: &'a Schema) -> Result<(), String> {
        let Value::Object(map) = value else { return self.wrong(value, schema) };
        self.around.push(schema);
        let outer = self.holder.clone();
        let depth = self.path.len();
        for (name, value) in map {
            if let Some(field) = schema.properties.get(name) {
                if !schema.name.is_empty() {
                    self.holder = struct_name(&schema.name).to_owned();
                }
                self.path.extend(inlined(&self.holder, name).map(str::to_owned));
                self.path.push(name.clone());
                self.value(value, field)?;
                self.path.truncate(depth);
                self.holder.clone_from(&outer);
            } else if let Some(values) = &schema.values {
                self.value(value, values)?;
            }
        }
        self.around.pop();
        Ok(())
    }

    fn items(&mut self, items: &[Value], schema: &'a Schema) -> Result<(), String> {
        let Some(schema) = &schema.items else { return Ok(()) };
        items.iter().try_for_each(|item| self.value(item, schema))
    }

    fn text(&mut self, value: &Value, schema: &Schema) -> Result<(), String> {
        match (value, schema.format.as_deref()) {
            (Value::String(text), Some("date-time")) => go_time::parse(text, schema.name.ends_with(".MicroTime")),
            (Value::String(text), Some("byte")) => {
                self.wrong = self.wrong.take().or(base64(text).err());
                Ok(())
            }
            (Value::Array(_), Some("byte")) | (Value::String(_), _) => Ok(()),
            (other, _) => self.wrong(other, schema),
        }
    }

    fn integer(&mut self, value: &Value, schema: &Schema) -> Result<(), String> {
        let Value::Number(number) = value else { return self.wrong(value, schema) };
        let most = if go_type(schema) == "int64" { i64::MAX } else { i64::from(i32::MAX) };
        let fits = number.as_i64().is_some_and(|whole| whole <= most && whole >= -most - 1);
        if fits { Ok(()) } else { self.refuse(&format!("number {number}"), schema) }
    }

    fn wrong(&mut self, value: &Value, schema: &Schema) -> Result<(), String> {
        self.refuse(json_type(value), schema)
    }

    fn refuse(&mut self, found: &str, schema: &Schema) -> Result<(), String> {
        let field = self.path.last().map_or("", String::as_str);
        let named = TEXT_TYPES.iter().find(|(holder, name, _)| *holder == self.holder && *name == field);
        let wanted = named.map_or_else(|| go_type(schema), |(_, _, name)| (*name).to_owned());
        let said = match self.path.is_empty() {
            true => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
            false => {
                let place = format!("{}.{}", self.holder, self.path.join("."));
                format!("json: cannot unmarshal {found} into Go struct field {place} of type {wanted}")
            }
        };
        self.wrong.get_or_insert(said);
        Ok(())
    }
}

/// Texts that have a type of their own in Go, which only its messages tell: those that are written most.
const TEXT_TYPES: [(&str, &str, &str); 10] = [
    ("PodStatus", "phase", "v1.PodPhase"),
    ("PodSpec", "restartPolicy", "v1.RestartPolicy"),
    ("PodSpec", "dnsPolicy", "v1.DNSPolicy"),
    ("NodeStatus", "phase", "v1.NodePhase"),
    ("NodeCondition", "type", "v1.NodeConditionType"),
    ("NodeCondition", "status", "v1.ConditionStatus"),
    ("PodCondition", "type", "v1.PodConditionType"),
    ("PodCondition", "status", "v1.ConditionStatus"),
    ("Taint", "effect", "v1.TaintEffect"),
    ("Secret", "type", "v1.SecretType"),
];

/// Whether a type in a message is one of texts.
pub fn is_text_type(name: &str) -> bool {
    TEXT_TYPES.iter().any(|(_, _, known)| *known == name)
}

/// Raw JSON in Go, whatever the document says.
fn is_raw(schema: &Schema) -> bool {
    ["FieldsV1", "RawExtension"].contains(&struct_name(&schema.name))
}

fn struct_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// Structs that Go embeds without a name in JSON show in its messages all the same.
fn inlined(holder: &str, field: &str) -> Option<&'static str> {
    match (holder, field) {
        ("Probe", "exec" | "grpc" | "httpGet" | "tcpSocket") => Some("ProbeHandler"),
        ("Volume", field) if field != "name" => Some("VolumeSource"),
        (
            "ConfigMapEnvSource"
            | "ConfigMapKeySelector"
            | "ConfigMapProjection"
            | "ConfigMapVolumeSource"
            | "SecretEnvSource"
            | "SecretKeySelector"
            | "SecretProjection",
            "name",
        ) => Some("LocalObjectReference"),
        (_, _) => None,
    }
}

fn go_type(schema: &Schema) -> String {
    let named = || {
        let mut parts = schema.name.rsplit('.');
        let (name, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        format!("{version}.{name}")
    };
    match schema.kind {
        Type::Object => match &schema.values {
            Some(values) if values.kind == Type::Quantity => "v1.ResourceList".to_owned(),
            Some(values) => format!("map[string]{}", go_type(values)),
            None => named(),
        },
        Type::Array => format!("[]{}", schema.items.as_ref().map(|items| go_type(items)).unwrap_or_default()),
        Type::String if schema.format.as_deref() == Some("byte") => "[]uint8".to_owned(),
        Type::String => "string".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::Number => "float64".to_owned(),
        Type::Integer if schema.format.as_deref() == Some("int64") => "int64".to_owned(),
        Type::Integer | Type::IntOrString => "int32".to_owned(),
        Type::Quantity => "resource.Quantity".to_owned(),
        Type::Any => named(),
    }
}

fn quantity(value: &Value) -> Result<(), String> {
    const SHAPE: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return Err(SHAPE.to_owned()),
    };
    if text.is_empty() {
        return Err(SHAPE.to_owned());
    }
    let digits = |text: &'_ str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(&text);
    rest = &rest[digits(rest)..];
    if let Some(after) = rest.strip_prefix('.') {
        rest = &after[digits(after)..];
    }
    let suffix = rest;
    rest = rest.trim_start_matches(|one| "eEinumkKMGTP".contains(one));
    rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    if digits(rest) < rest.len() {
        return Err(SHAPE.to_owned());
    }
    let is_power = |suffix: &str| suffix.strip_prefix(['e', 'E']).is_some_and(|power| power.parse::<i64>().is_ok());
    let known = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].contains(&suffix);
    if known || is_power(suffix) { Ok(()) } else { Err("unable to parse quantity's suffix".to_owned()) }
}

/// Standard encoding with padding; line breaks are skipped, as Go does.
fn base64(text: &str) -> Result<(), String> {
    let fail = |at: usize| Err(format!("illegal base64 data at input byte {at}"));
    let mut quantum = 0;
    let mut bytes = text.bytes().enumerate().filter(|(_, one)| *one != b'\n' && *one != b'\r');
    while let Some((at, one)) = bytes.next() {
        match one {
            b'=' if quantum < 2 => return fail(at),
            b'=' => {
                let closes = quantum == 3 || matches!(bytes.next(), Some((_, b'=')));
                return match (closes, bytes.next()) {
                    (true, None) => Ok(()),
                    (true, Some((at, _))) => fail(at),
                    (false, _) => fail(text.len()),
                };
            }
            b'+' | b'/' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => quantum = (quantum + 1) % 4,
            _ => return fail(at),
        }
    }
    if quantum == 0 { Ok(()) } else { fail(text.len() - quantum) }
}
