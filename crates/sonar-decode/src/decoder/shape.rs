//! Is the shape of this request known already? Makes the texts of a shape that is seen for the first time.

use std::sync::Arc;

use sonar_core::ShapeInfo;

use super::Core;
use super::request::Shape;
use crate::identity::{MAX_SHAPES, MaybeRendered, ids_of, info_of, info_with};
use crate::message::{Content, Request};
use crate::shape::Text;

impl Core {
    /// The shape of a request; `body`, where it is at hand, is what it was read from.
    pub(super) fn shape<T: Text + MaybeRendered>(
        &mut self,
        request: &mut Request<T>,
        body: Option<&[u8]>,
    ) -> Shape {
        let (ids, text) = ids_of(request);
        self.coverage.shapes_over_cap += u64::from(request.builder.over_cap);
        let statement_count = request.builder.statement_count.max(1);
        let shape = |info: &Arc<ShapeInfo>, statements| Shape {
            info: info.clone(),
            ordered_id: ids.ordered,
            statements,
            statement_count,
        };
        if let Some(info) = self.known.get(&ids.shape.0) {
            return shape(info, ids.statements);
        }
        if self.known.len() >= MAX_SHAPES {
            self.coverage.shapes_folded += 1;
            return shape(&self.other_shape, ids.statements);
        }
        let shared = self.shared.clone();
        let made = match body {
            // Seen for the first time, and its bytes are here: read again, this time with text.
            Some(body) => shared.shape(ids.shape, || {
                self.renderer.reset(request.opcode);
                self.body.begin(request.opcode, body.len() as u64);
                let _ = self.body.feed(body, &mut Content::Request(&mut self.renderer));
                info_of(&mut self.renderer)
            }),
            None => shared.shape(ids.shape, || info_with(request, &ids, text)),
        };
        let Some((info, cut)) = made else {
            self.coverage.shapes_folded += 1;
            return shape(&self.other_shape, ids.statements);
        };
        self.coverage.shapes_text_cut += u64::from(cut);
        self.known.insert(ids.shape.0, info.clone());
        shape(&info, ids.statements)
    }
}
