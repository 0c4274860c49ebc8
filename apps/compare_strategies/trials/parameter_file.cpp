#include "lockstep/apps/compare_strategies/trials/parameter_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace lockstep::apps {

void write_parameter_file(const std::string& path, const std::vector<double>& values) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(double)));
  file.flush();
  if (!file) throw std::runtime_error(path + ": cannot be written");
}

std::vector<double> read_parameter_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  const auto bytes = static_cast<std::streamoff>(file.tellg());
  if (bytes % static_cast<std::streamoff>(sizeof(double)) != 0) {
    throw std::runtime_error(path + ": expected whole numbers of 8 bytes, but got " + std::to_string(bytes) +
                             " bytes");
  }
  std::vector<double> values(static_cast<size_t>(bytes) / sizeof(double));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), bytes);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return values;
}

double largest_difference(const std::vector<double>& values, const std::vector<double>& others) {
  if (values.size() != others.size()) {
    throw std::invalid_argument("[largest_difference] expected as many values, but got " +
                                std::to_string(values.size()) + " and " + std::to_string(others.size()));
  }
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - others[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace lockstep::apps
