#include "lockstep/benchmarks/exchange/transport_options.h"

#include <cxxopts.hpp>
#include <iostream>
#include <stdexcept>
#include <string>

#include "lockstep/benchmarks/flag_values.h"

namespace lockstep::benchmarks {

std::optional<TransportOptions> parse_transport_options(int argc, char** argv) {
  cxxopts::Options flags("exchange_benchmark",
                         "All-reduces between processes of this machine by Lockstep's exchanges, over shared "
                         "memory and over TCP, against PyTorch's Gloo. Prints Markdown.");
  // clang-format off
  flags.add_options()
    ("processes", "numbers of processes", cxxopts::value<std::vector<int>>()->default_value("2,4,8"))
    ("kibibytes", "sizes of the float32 values, in KiB",
     cxxopts::value<std::vector<int64_t>>()->default_value("4,256,8192,32768"))
    ("pairs", "measurements of each kind", cxxopts::value<int64_t>()->default_value("21"))
    ("help", "print this");
  // clang-format on
  const auto given = flags.parse(argc, argv);
  if (given.count("help") > 0) {
    std::cout << flags.help();
    return std::nullopt;
  }
  TransportOptions options{.processes = given["processes"].as<std::vector<int>>(),
                           .kibibytes = given["kibibytes"].as<std::vector<int64_t>>(),
                           .pairs = static_cast<int>(at_least(given, "pairs", 6))};
  for (const int count : options.processes)
    if (count < 2)
      throw std::invalid_argument("--processes: expected 2 or more, but got " + std::to_string(count));
  for (const int64_t size : options.kibibytes)
    if (size < 1)
      throw std::invalid_argument("--kibibytes: expected 1 or more, but got " + std::to_string(size));
  return options;
}

}  // namespace lockstep::benchmarks
