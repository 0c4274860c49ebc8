#include "lockstep/measurement/machine.h"

#include <array>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace lockstep::measurement {
namespace {

/// Returns the text after `key` and a colon in a file of such lines, or nothing.
std::string look_up(const char* file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// Returns a number that the system gives in KiB for this process.
int64_t bytes_of_status(const char* key) {
  const std::string kibibytes = look_up("/proc/self/status", key);
  if (kibibytes.empty())
    throw std::runtime_error(std::string("[measurement] expected ") + key +
                             " in /proc/self/status, but found none");
  return std::stoll(kibibytes) * 1024;
}

}  // namespace

std::string describe_machine() {
  const std::string name = look_up("/proc/cpuinfo", "model name");
  return (name.empty() ? "unnamed CPU" : name) + ", " + std::to_string(std::thread::hardware_concurrency()) +
         " cores";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts);
  return text.data();
}

int64_t peak_memory_bytes() {
  return bytes_of_status("VmHWM");
}

int64_t mapped_file_bytes() {
  return bytes_of_status("RssFile");
}

}  // namespace lockstep::measurement
