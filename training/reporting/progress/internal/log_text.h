#pragma once

#include <string>

namespace lockstep {

/// Returns the name of a log for people: `learning rate` for learning_rate, and MFU for
/// model_flop_utilization.
std::string log_title(std::string name);
/// Returns the value of a log for people; shares are percentages.
std::string log_value_text(const std::string& name, double value);

}  // namespace lockstep
