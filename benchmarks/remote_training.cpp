#include "lockstep/benchmarks/remote_training.h"

#include <charconv>
#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

// PyTorch's job under torch.compile takes minutes before its first step, and says meanwhile that it compiles.
constexpr std::chrono::seconds kTimeoutOfFirstStep{600};
constexpr std::chrono::seconds kTimeout{300};
const std::string kReady = "ready ";

}  // namespace

RemoteTraining::RemoteTraining(const Command& command)
    : started_(std::chrono::steady_clock::now()), process_(command) {
  const std::string answer = process_.read_line(kTimeoutOfFirstStep);
  seconds_to_first_step_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  if (answer.compare(0, kReady.size(), kReady) != 0)
    throw std::runtime_error("[benchmark] expected 'ready <parameters>' from a job, but got '" + answer +
                             "'");
  num_parameters_ = std::stoll(answer.substr(kReady.size()));
}

double RemoteTraining::ask(const std::string& request) {
  process_.write_line(request);
  const std::string answer = process_.read_line(kTimeout);
  double value = 0;
  const auto [end, error] = std::from_chars(answer.data(), answer.data() + answer.size(), value);
  if (error != std::errc() || end != answer.data() + answer.size()) {
    throw std::runtime_error("[benchmark] expected a number from a job asked for '" + request +
                             "', but got '" + answer + "'");
  }
  return value;
}

double RemoteTraining::seconds_for(int steps) {
  return ask(std::to_string(steps));
}

double RemoteTraining::loss() {
  return ask("loss");
}

int64_t RemoteTraining::peak_memory_bytes() {
  return static_cast<int64_t>(ask("peak_memory"));
}

}  // namespace lockstep::benchmarks
