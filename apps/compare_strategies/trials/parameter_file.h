#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

/// Writes a model's trained values, one after another, as the machine keeps its doubles. Throws
/// std::runtime_error naming the file where that fails.
void write_parameter_file(const std::string& path, const std::vector<double>& values);

/// Reads them back. Throws std::runtime_error naming the file where it cannot be read or is cut off.
std::vector<double> read_parameter_file(const std::string& path);

/// The largest distance between a value and the one in its place; NaN where one of two is NaN. Throws
/// std::invalid_argument where their numbers differ: they belong to different models.
double largest_difference(const std::vector<double>& values, const std::vector<double>& others);

}  // namespace lockstep::apps
