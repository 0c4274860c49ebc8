#pragma once

#include "lockstep/training/reporting/html/internal/html_page.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// Adds a table that compares the last validation loss with the reference losses; nothing if there are none.
void add_reference_losses(const RunRecord& record, HtmlPage& page);

/// Adds the texts that the model wrote. Those of the last title are shown first, the earlier ones are folded.
void add_samples(const RunRecord& record, HtmlPage& page);

}  // namespace lockstep
