#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// One value of a cluster's configuration, as named in error messages: RANK of torchrun, or cluster.worker[1]
/// of TF_CONFIG.
struct ConfigurationValue {
  std::string source;
  std::string name;
};

/// Returns `text` fit for one line of an error message: at most 80 characters, with "..." where it is cut,
/// and bytes other than printable ASCII as \xNN.
std::string excerpt(std::string_view text);

/// Returns excerpt() in single quotes.
std::string quoted_excerpt(std::string_view text);

/// Throws InvalidArgument: "[source] expected name to be `expected`, but got `given`".
[[noreturn]] void refuse_value(const ConfigurationValue& value, const std::string& expected,
                               const std::string& given);

}  // namespace lockstep
