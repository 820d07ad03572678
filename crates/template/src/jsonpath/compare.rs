//! Comparison in filters: only values of one type are compared; integers are of one type, whatever their sign.

use std::cmp::Ordering;

use serde_json::Value;

use super::error::FindError;
use super::item::Item;
use super::syntax::Operator;

#[derive(Debug, PartialEq, PartialOrd)]
enum Scalar<'a> {
    Boolean(bool),
    Integer(i128),
    Float(f64),
    Text(&'a str),
}

/// Whether a comparison holds. Booleans are equal or not, and have no order.
pub(super) fn holds(
    operator: &Operator,
    left: &Item<'_, '_>,
    right: &Item<'_, '_>,
) -> Result<bool, FindError> {
    if let Operator::Other(operator) = operator {
        return Err(FindError::Operator(operator.clone()));
    }
    let left = scalar(left).ok_or(FindError::Incomparable)?;
    let right = scalar(right).ok_or(FindError::Incomparable)?;
    if std::mem::discriminant(&left) != std::mem::discriminant(&right) {
        return Err(FindError::Incompatible);
    }
    let is_ordering = !matches!(operator, Operator::Equal | Operator::NotEqual);
    if is_ordering && matches!(left, Scalar::Boolean(_)) {
        return Err(FindError::Incomparable);
    }
    let ordering = left.partial_cmp(&right);
    Ok(match operator {
        Operator::Equal => ordering == Some(Ordering::Equal),
        Operator::NotEqual => ordering != Some(Ordering::Equal),
        Operator::Less => ordering == Some(Ordering::Less),
        Operator::LessOrEqual => ordering.is_some_and(Ordering::is_le),
        Operator::Greater => ordering == Some(Ordering::Greater),
        Operator::GreaterOrEqual => ordering.is_some_and(Ordering::is_ge),
        Operator::Exists | Operator::Other(_) => true,
    })
}

fn scalar<'a>(item: &'a Item<'_, '_>) -> Option<Scalar<'a>> {
    Some(match item {
        Item::Node(Value::Bool(boolean)) | Item::Boolean(boolean) => Scalar::Boolean(*boolean),
        Item::Node(Value::Number(number)) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Scalar::Integer(number.into()),
            (None, Some(number)) => Scalar::Integer(number.into()),
            (None, None) => Scalar::Float(number.as_f64()?),
        },
        Item::Integer(number) => Scalar::Integer((*number).into()),
        Item::Byte(byte) => Scalar::Integer((*byte).into()),
        Item::Float(number) => Scalar::Float(*number),
        Item::Node(Value::String(_)) | Item::Text(_) => Scalar::Text(item.text()?),
        Item::Node(Value::Null | Value::Array(_) | Value::Object(_)) | Item::Nothing => {
            return None;
        }
    })
}
