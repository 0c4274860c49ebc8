#include "lockstep/benchmarks/planning/order/order_options.h"

#include <cxxopts.hpp>
#include <stdexcept>
#include <string>

namespace lockstep::benchmarks {

OrderOptions parse_order(int argc, char** argv) {
  cxxopts::Options flags("planning_order_benchmark",
                         "Compares the order in which layouts are planned with the order of their times.");
  const auto number = [](const char* value) { return cxxopts::value<int64_t>()->default_value(value); };
  // clang-format off
  flags.add_options()
    ("first", "number of the first case", number("1"))
    ("cases", "how many cases", number("20"))
    ("layouts", "layouts of each case that are measured, at most", number("8"))
    ("steps", "measured steps of each layout", number("5"))
    ("only-plans", "measure nothing");
  // clang-format on
  const auto given = flags.parse(argc, argv);
  const auto read = [&](const std::string& name, int64_t most) {
    const auto value = given[name].as<int64_t>();
    if (value < 1 || value > most) {
      throw std::invalid_argument("--" + name + ": expected 1 to " + std::to_string(most) + ", but got " +
                                  std::to_string(value));
    }
    return value;
  };
  return {.first = read("first", 1000),
          .cases = read("cases", 1000),
          .layouts = read("layouts", 1000),
          .steps = read("steps", 1000),
          .only_plans = given.count("only-plans") > 0};
}

}  // namespace lockstep::benchmarks
