#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Returns a field of a click log for an error: in quotation marks, in printable characters, and no longer
/// than an error should be.
std::string quoted_field(std::string_view field);

}  // namespace lockstep
