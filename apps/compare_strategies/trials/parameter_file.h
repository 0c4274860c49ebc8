#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

/// Writes a model's trained values in sequence, as doubles in the machine's own format. Throws
/// std::runtime_error naming the file on failure.
void write_parameter_file(const std::string& path, const std::vector<double>& values);

/// Reads such a file. Throws std::runtime_error naming the file if it cannot be read or is truncated.
std::vector<double> read_parameter_file(const std::string& path);

/// Returns the largest elementwise distance; NaN if either value of a pair is NaN. Throws
/// std::invalid_argument if the sizes differ, because the values then belong to different models.
double largest_difference(const std::vector<double>& values, const std::vector<double>& others);

}  // namespace lockstep::apps
