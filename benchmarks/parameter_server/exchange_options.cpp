#include "lockstep/benchmarks/parameter_server/exchange_options.h"

#include <cxxopts.hpp>
#include <iostream>
#include <stdexcept>
#include <string>

#include "lockstep/benchmarks/flag_values.h"

namespace lockstep::benchmarks {

std::optional<ExchangeOptions> parse_exchange(int argc, char** argv) {
  cxxopts::Options flags(
      "parameter_server_benchmark",
      "Rows of embedding tables pulled from parameter servers and gradients pushed to them, "
      "against the same bytes over TensorPipe alone. Prints Markdown.");
  const ExchangeOptions defaults;
  const auto number = [](int64_t value) {
    return cxxopts::value<int64_t>()->default_value(std::to_string(value));
  };
  // clang-format off
  flags.add_options()
    ("tables", "embedding tables", number(defaults.num_tables))
    ("rows", "of each table", number(defaults.num_rows))
    ("batch-rows", "of each table in one exchange", number(defaults.batch_rows))
    ("width", "floats in a row", number(defaults.width))
    ("servers", "numbers of server processes", cxxopts::value<std::vector<int>>()->default_value("1,2"))
    ("pairs", "measurements of each kind", number(defaults.pairs))
    ("help", "print this");
  // clang-format on
  const auto given = flags.parse(argc, argv);
  if (given.count("help") > 0) {
    std::cout << flags.help();
    return std::nullopt;
  }
  ExchangeOptions options{.num_tables = at_least(given, "tables", 1),
                          .num_rows = at_least(given, "rows", 1),
                          .batch_rows = at_least(given, "batch-rows", 1),
                          .width = at_least(given, "width", 1),
                          .servers = given["servers"].as<std::vector<int>>(),
                          .pairs = static_cast<int>(at_least(given, "pairs", 6))};
  if (options.batch_rows > options.num_rows)
    throw std::invalid_argument("--batch-rows: expected no more than --rows");
  for (const int count : options.servers)
    if (count < 1)
      throw std::invalid_argument("--servers: expected 1 or more, but got " + std::to_string(count));
  return options;
}

}  // namespace lockstep::benchmarks
