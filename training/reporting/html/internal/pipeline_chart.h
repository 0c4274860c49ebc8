#pragma once

#include <string>

#include "lockstep/training/reporting/html/internal/html_page.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// Returns the step of a pipeline as a <figure> with inline SVG for an HtmlPage: when each rank computed, as
/// planned and, below it, as measured, on one axis of time. One row per rank, one box per computation, with
/// the number of its micro-batch if there is room. Returns an empty string if there are more than 60 000
/// boxes or 128 ranks, which nobody could tell apart. Throws InvalidArgument if the record has no
/// computations, a rank that it should not have, or times that are not from 0 to 1e9 s and in order.
std::string pipeline_figure(const PipelineRecord& record);

/// Adds a section with this figure if the record has a pipeline.
void add_pipeline(const RunRecord& record, HtmlPage& page);

}  // namespace lockstep
