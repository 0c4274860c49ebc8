#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep {

struct BoundedJsonOptions {
  std::string source = "JSON";         ///< source of the text, for error messages
  size_t max_bytes = size_t{1} << 20;  ///< maximum length of the text
  size_t max_depth = 16;               ///< maximum nesting of arrays and objects
};

/// Returns the path of `key` in the object at `parent`, such as cluster.worker, or cluster["a b"] if the key
/// is not a plain word. Long keys are shortened.
std::string json_path(const std::string& parent, const std::string& key);

/// Parses JSON from an untrusted source. Checks the whole text before it builds anything. Throws
/// InvalidArgument naming the source, and the line and column or the path, if the text exceeds the limits, is
/// not valid JSON, or has an object with a duplicate key.
nlohmann::json parse_bounded_json(std::string_view text, const BoundedJsonOptions& options);

}  // namespace lockstep
