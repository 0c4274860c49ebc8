#pragma once

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// Action of a program that trains.
enum class Action { kTrain, kHelp, kVersion, kListDevices };

/// Returns the action that the flags ask for.
Action requested_action(const Arguments& given);

/// Adds the values of the configuration file that --config names, and checks which flags go together. Throws
/// UsageError naming the flag (or the file and key), the expected and the given value.
void complete_arguments(Arguments& given, const FlagTable& table);

}  // namespace lockstep::apps
