#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/apps/shared/command_line/setting_values.h"
#include "lockstep/apps/shared/session/run_choice.h"

namespace lockstep::apps {

/// Returns the flags of a RunChoice and --config.
std::vector<Flag> run_flags();
/// Returns which of them have an effect only with others.
std::vector<FlagNeed> run_needs();

/// Sets the choice from a program's arguments; fields whose flag was not given keep their value. Throws
/// UsageError naming the flag, the expected and the given value.
void read_run(const Arguments& given, RunChoice& choice);

/// Returns the values of these flags for a run's configuration.
settings::NamedValues run_values(const RunChoice& choice);
/// Returns whether output is coloured, as a resolved value. NO_COLOR decides if it is set.
Setting color_setting();

/// Returns the lines of a printed configuration that say what is recorded and saved, and where.
std::string run_rows(const RunChoice& choice);

}  // namespace lockstep::apps
