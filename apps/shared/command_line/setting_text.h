#pragma once

#include <string>

#include "lockstep/apps/shared/command_line/setting.h"

namespace lockstep::apps {

/// Returns the value as a text for people; lists are separated by commas. Empty if there is no value.
std::string setting_text(const SettingValue& value);

}  // namespace lockstep::apps
