//! Schemas of the shapes the server answers and of the bodies it takes.

use std::collections::BTreeMap;

use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, Schema};
use utoipa::openapi::{ArrayBuilder, KnownFormat, ObjectBuilder, Ref, RefOr, SchemaFormat, Type};

use crate::problem::ProblemShape;
use crate::request::{Field, Kind, Shape};
use crate::shape::event::EventShape;

/// The named schemas of the document, as they come up.
pub(crate) struct Schemas(BTreeMap<String, RefOr<Schema>>);

impl Schemas {
    /// No schemas yet.
    pub(crate) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// All that came up, by name.
    pub(crate) fn all(self) -> BTreeMap<String, RefOr<Schema>> {
        self.0
    }

    fn keep(&mut self, name: &str, schema: impl Into<RefOr<Schema>>) -> RefOr<Schema> {
        self.0.insert(name.to_owned(), schema.into());
        Ref::from_schema_name(name).into()
    }

    /// A shape the server answers.
    pub(crate) fn of<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let mut nested = Vec::new();
        T::schemas(&mut nested);
        self.0.extend(nested);
        self.keep(&T::name(), T::schema())
    }

    /// A problem document.
    pub(crate) fn problem(&mut self) -> RefOr<Schema> {
        self.of::<ProblemShape<'_>>()
    }

    /// A page of a list.
    pub(crate) fn page<T: ToSchema>(&mut self, name: &str) -> RefOr<Schema> {
        let items = self.of::<T>();
        let cursor = ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::SchemaType::from_iter([Type::String, Type::Null]))
            .description(Some("Send it as `cursor` for the next page; null at the end."));
        self.keep(name, list(items, cursor))
    }

    /// A page of the log of events.
    pub(crate) fn event_page(&mut self) -> RefOr<Schema> {
        let items = self.of::<EventShape<'_>>();
        let cursor = ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::SchemaType::from_iter([Type::Integer, Type::Null]))
            .description(Some("Send it as `after` for the next page; null when the page is empty."));
        self.keep("EventLogPage", list(items, cursor))
    }

    /// The answers of a batch; `field` holds the thing of one that was done.
    pub(crate) fn batch<T: ToSchema>(&mut self, name: &str, field: &str) -> RefOr<Schema> {
        let thing = self.of::<T>();
        self.results(name, field, thing)
    }

    fn results(&mut self, name: &str, field: &str, thing: RefOr<Schema>) -> RefOr<Schema> {
        self.results_of(name, Some((field, thing)))
    }

    fn results_of(&mut self, name: &str, thing: Option<(&str, RefOr<Schema>)>) -> RefOr<Schema> {
        let problem = self.problem();
        let mut result = ObjectBuilder::new().property(
            "status",
            ObjectBuilder::new().schema_type(Type::Integer).description(Some("As if it had been sent alone.")),
        );
        if let Some((field, thing)) = thing {
            result = result.property(field, thing);
        }
        let result = result.property("problem", problem).required("status");
        let results = ObjectBuilder::new().property("results", ArrayBuilder::new().items(result)).required("results");
        self.keep(name, results)
    }

    /// The answers of a batch whose things that were done say only yes or no in `field`.
    pub(crate) fn batch_of_flags(&mut self, name: &str, field: &str) -> RefOr<Schema> {
        let flag = ObjectBuilder::new().schema_type(Type::Boolean);
        self.results(name, field, flag.into())
    }

    /// The answers of a batch that shows nothing of what was done.
    pub(crate) fn statuses(&mut self, name: &str) -> RefOr<Schema> {
        self.results_of(name, None)
    }

    /// A body the server takes.
    pub(crate) fn body(&mut self, shape: &'static Shape) -> RefOr<Schema> {
        let mut object = ObjectBuilder::new()
            .description(Some(shape.doc))
            .examples(serde_json::from_str::<serde_json::Value>(shape.example).ok())
            .additional_properties(Some(AdditionalProperties::FreeForm(false)));
        for field in shape.fields {
            object = object.property(field.name, self.field(field));
            if field.required {
                object = object.required(field.name);
            }
        }
        self.keep(shape.name, object)
    }

    fn field(&mut self, field: &Field) -> RefOr<Schema> {
        let clears = if field.clearable { " null clears it." } else { "" };
        let told = match field.kind {
            Kind::Json(max) => format!("{} At most {max} bytes as compact JSON.", field.doc),
            Kind::JsonObject(max) => format!("{}{clears} At most {max} bytes as compact JSON.", field.doc),
            _ => format!("{}{clears}", field.doc),
        };
        let described = |object: ObjectBuilder, kind: Type| {
            let object = object.description(Some(told.clone()));
            if field.required {
                return object.schema_type(kind).into();
            }
            object.schema_type(utoipa::openapi::schema::SchemaType::from_iter([kind, Type::Null])).into()
        };
        match field.kind {
            Kind::Text(max) => described(ObjectBuilder::new().max_length(Some(max)), Type::String),
            Kind::Label => described(ObjectBuilder::new().min_length(Some(1)).max_length(Some(128)), Type::String),
            Kind::OrderId => {
                described(ObjectBuilder::new().pattern(Some("^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$")), Type::String)
            }
            Kind::Currency => described(ObjectBuilder::new().pattern(Some("^[A-Z]{3}$")), Type::String),
            Kind::Instant => described(
                ObjectBuilder::new().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
                Type::String,
            ),
            Kind::Integer(min, max) => {
                described(ObjectBuilder::new().minimum(Some(min)).maximum(Some(max)), Type::Integer)
            }
            Kind::Choice(words) => {
                described(ObjectBuilder::new().enum_values(Some(words.iter().copied())), Type::String)
            }
            Kind::Json(_) => ObjectBuilder::new()
                .schema_type(utoipa::openapi::schema::SchemaType::AnyValue)
                .description(Some(told))
                .into(),
            Kind::Flag => described(ObjectBuilder::new(), Type::Boolean),
            Kind::JsonObject(_) => described(
                ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(true))),
                Type::Object,
            ),
            Kind::Object(shape) => self.body(shape),
            Kind::List(shape, min, max) => {
                let items = self.body(shape);
                ArrayBuilder::new()
                    .items(items)
                    .min_items(Some(min))
                    .max_items(Some(max))
                    .description(Some(field.doc))
                    .into()
            }
        }
    }
}

fn list(items: RefOr<Schema>, cursor: ObjectBuilder) -> ObjectBuilder {
    ObjectBuilder::new()
        .property("items", ArrayBuilder::new().items(items))
        .property("next_cursor", cursor)
        .required("items")
        .required("next_cursor")
}
