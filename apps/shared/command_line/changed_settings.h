#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/setting.h"

namespace lockstep::apps {

/// Returns the settings that decide the result of a run (FlagRole::kSetting) and differ from those of an
/// earlier one, such as "epochs 5 -> 10"; "none" stands for no value. `earlier` is the text of its
/// configuration file. A flag that the earlier program did not have is left out. Returns nothing if the text
/// is not a configuration.
std::vector<std::string> changed_settings(const std::string& earlier, const std::vector<Setting>& settings,
                                          const FlagTable& table);

/// Returns one line for people that lists the changes, or an empty text if there are none.
std::string changed_settings_text(const std::vector<std::string>& changes);

}  // namespace lockstep::apps
