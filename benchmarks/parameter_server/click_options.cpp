#include "lockstep/benchmarks/parameter_server/click_options.h"

#include <cxxopts.hpp>
#include <iostream>
#include <stdexcept>
#include <string>

#include "lockstep/benchmarks/flag_values.h"
#include "lockstep/datasets/clicks/click_row.h"

namespace lockstep::benchmarks {

std::optional<ClickOptions> parse_clicks(int argc, char** argv) {
  cxxopts::Options flags("click_job",
                         "One process of a job of parameter servers that trains Wide & Deep on click logs in "
                         "memory. The chief prints how many rows a second were trained on.");
  const ClickOptions defaults;
  const auto number = [](int64_t value) {
    return cxxopts::value<int64_t>()->default_value(std::to_string(value));
  };
  // clang-format off
  flags.add_options()
    ("tables", "embedding tables: 1 for all columns, or 26", number(defaults.tables))
    ("table-rows", "of each table", number(defaults.table_rows))
    ("embedding-dim", "columns of each table", number(defaults.embedding_dim))
    ("units", "of the hidden layers", cxxopts::value<std::vector<int64_t>>()->default_value("64"))
    ("global-batch-size", "rows of a worker's step", number(defaults.batch_size))
    ("steps", "that are timed", number(defaults.steps))
    ("warmup-steps", "before them", number(defaults.warmup_steps))
    ("help", "print this");
  // clang-format on
  const auto given = flags.parse(argc, argv);
  if (given.count("help") > 0) {
    std::cout << flags.help();
    return std::nullopt;
  }
  ClickOptions options{.tables = at_least(given, "tables", 1),
                       .table_rows = at_least(given, "table-rows", 1),
                       .embedding_dim = at_least(given, "embedding-dim", 1),
                       .units = given["units"].as<std::vector<int64_t>>(),
                       .batch_size = at_least(given, "global-batch-size", 1),
                       .steps = at_least(given, "steps", 1),
                       .warmup_steps = at_least(given, "warmup-steps", 1)};
  if (options.tables != 1 && options.tables != kClickCategories)
    throw std::invalid_argument("--tables: expected 1 or 26, but got " + std::to_string(options.tables));
  return options;
}

}  // namespace lockstep::benchmarks
