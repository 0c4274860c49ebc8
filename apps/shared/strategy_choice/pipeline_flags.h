#pragma once

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/setting_values.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_choice.h"

namespace lockstep::apps {

/// Return the flags of a PipelineChoice. The second depends on the first, as FlagTable::dependents says.
Flag pipeline_schedule_flag();
Flag stages_per_rank_flag();
Flag pipeline_cut_flag();

/// Reads the given flags into `choice`; fields whose flag was not given keep their value. Throws UsageError
/// naming the flag, the expected value and the given one.
void read_pipeline(const Arguments& given, PipelineChoice& choice);

/// Returns the value of each flag.
settings::NamedValues pipeline_values(const PipelineChoice& choice);

}  // namespace lockstep::apps
