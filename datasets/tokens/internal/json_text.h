#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Reads the text in one field of a JSON object. Returns a description of the problem, or nothing if there is
/// none. If the field is given several times, the last one counts. Takes memory for the longest text of the
/// line, however deep its values are nested.
std::optional<std::string> parse_json_text(std::string_view line, std::string_view field, std::string& text);

}  // namespace lockstep
