#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep {

struct BoundedJsonOptions {
  std::string source = "JSON";         ///< where the text comes from, for error messages
  size_t max_bytes = size_t{1} << 20;  ///< of the text
  size_t max_depth = 16;               ///< arrays and objects inside each other
};

/// The path of `key` in the object at `parent`: cluster.worker, or cluster["a b"] for a key that is no plain
/// word. Long keys are shortened.
std::string json_path(const std::string& parent, const std::string& key);

/// Reads JSON from a source that is not trusted. Builds nothing before the text has been checked in whole.
/// Throws InvalidArgument naming the source, and the line and column or the path, for text beyond the limits,
/// bad JSON and a key that an object has twice.
nlohmann::json parse_bounded_json(std::string_view text, const BoundedJsonOptions& options);

}  // namespace lockstep
