#pragma once

#include <string>

#include "lockstep/training/reporting/html/internal/html_page.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// Returns the load of experts as a <figure> with inline SVG for an HtmlPage: one row per layer, one column
/// per expert. A cell is darker the larger its load, and shows it as a multiple of an even share if there is
/// room. Throws InvalidArgument if the loads are not those of whole layers, negative or not finite.
std::string expert_load_figure(const ExpertLoad& load);

/// Adds a section with this figure if the record has the loads.
void add_expert_load(const RunRecord& record, HtmlPage& page);

}  // namespace lockstep
