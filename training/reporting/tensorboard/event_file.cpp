#include "lockstep/training/reporting/tensorboard/event_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "lockstep/runtime/base/files/internal/crc32c.h"
#include "lockstep/training/reporting/tensorboard/internal/protobuf_message.h"
#include "lockstep/training/reporting/tensorboard/internal/tensorboard_summary.h"

namespace lockstep {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

/// TensorBoard reads the files that have "tfevents" in their name, in the order of their names, so the name
/// begins with the time.
std::string event_file_name(int number) {
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%010lld", static_cast<long long>(seconds_since_1970()));
  return std::string("events.out.tfevents.") + seconds.data() + "." + host_name() + "." +
         std::to_string(::getpid()) + "." + std::to_string(number);
}

OutputFile create_event_file(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::system_error(error, "cannot make the folder '" + folder + "'");
  for (int number = 0;; ++number) {
    try {
      return OutputFile((std::filesystem::path(folder) / event_file_name(number)).string());
    } catch (const std::system_error& taken) {
      if (taken.code() != std::errc::file_exists) throw;
    }
  }
}

/// Returns an Event (event.proto) with its time and step only.
ProtobufMessage make_event(const EventTime& when) {
  return ProtobufMessage().number(1, when.wall_time).integer(2, when.step);
}

void append_little_endian(std::vector<uint8_t>& bytes, uint64_t value, int num_bytes) {
  for (int byte = 0; byte < num_bytes; ++byte) bytes.push_back(static_cast<uint8_t>(value >> (8 * byte)));
}

}  // namespace

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

EventFileWriter::EventFileWriter(const std::string& folder) : file_(create_event_file(folder)) {
  write_record(make_event({}).text(3, "brain.Event:2").message(10, ProtobufMessage().text(1, "lockstep")));
}

void EventFileWriter::scalar(const std::string& tag, double value, const EventTime& when) {
  write_summary(scalar_summary(tag, value), when);
}

void EventFileWriter::histogram(const std::string& tag, const ValueHistogram& histogram,
                                const EventTime& when) {
  write_summary(histogram_summary(tag, histogram), when);
}

void EventFileWriter::image(const std::string& tag, std::span<const uint8_t> png, const EventTime& when) {
  write_summary(image_summary(tag, png), when);
}

void EventFileWriter::text(const std::string& tag, const std::string& text, const EventTime& when) {
  write_summary(text_summary(tag, text), when);
}

void EventFileWriter::start_session(const HyperparameterSession& session, const EventTime& when) {
  write_summary(experiment_summary(session, when.wall_time), when);
  write_summary(session_start_summary(session, when.wall_time), when);
}

void EventFileWriter::end_session(SessionStatus status, const EventTime& when) {
  write_summary(session_end_summary(status, when.wall_time), when);
}

void EventFileWriter::write_summary(const ProtobufMessage& value, const EventTime& when) {
  write_record(make_event(when).message(5, ProtobufMessage().message(1, value)));
}

// A TFRecord has the length, its checksum, the bytes and their checksum; all numbers are little-endian.
void EventFileWriter::write_record(const ProtobufMessage& event) {
  const auto& bytes = event.encoded();
  std::vector<uint8_t> record;
  record.reserve(bytes.size() + 16);
  append_little_endian(record, bytes.size(), 8);
  append_little_endian(record, masked_crc32c(record), 4);
  record.insert(record.end(), bytes.begin(), bytes.end());
  append_little_endian(record, masked_crc32c(bytes), 4);
  file_.append(record);
}

}  // namespace lockstep
