#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/training/reporting/tensorboard/hyperparameters.h"
#include "lockstep/training/reporting/tensorboard/value_histogram.h"

namespace lockstep {

class ProtobufMessage;

/// Seconds since 1970, with fractions.
double seconds_since_1970();

/// Where on TensorBoard's axes something lies.
struct EventTime {
  int64_t step = 0;
  double wall_time = seconds_since_1970();
};

/// Writes what TensorBoard shows, into a new event file: TFRecord frames with one Event each, the values in
/// the form of its present plugins. `tensorboard --logdir <folder>` reads it while it grows, and counts each
/// folder with event files as a run.
///
/// Each call has handed its event to the system when it returns, so that a killed process loses none. Where
/// the disk is full, a call throws std::system_error naming the file, which stays readable, and later calls
/// may succeed. Used by one thread at a time.
class EventFileWriter {
 public:
  /// Makes `folder`, with those above it, where it is missing. Throws std::system_error naming what it could
  /// not make.
  explicit EventFileWriter(const std::string& folder);

  /// TensorBoard keeps the value as float32.
  void scalar(const std::string& tag, double value, const EventTime& when);
  /// TensorBoard's own writers make 30 bins.
  void histogram(const std::string& tag, const ValueHistogram& histogram, const EventTime& when);
  /// Throws InvalidArgument unless `png` begins as a PNG file does.
  void image(const std::string& tag, std::span<const uint8_t> png, const EventTime& when);
  /// Shown as Markdown.
  void text(const std::string& tag, const std::string& text, const EventTime& when);

  /// Gives the run a row in the HPARAMS tab; the metrics' columns show their last scalars. Once a file.
  void start_session(const HyperparameterSession& session, const EventTime& when = {});
  /// Says there how the run ended.
  void end_session(SessionStatus status, const EventTime& when = {});

  const std::string& path() const { return file_.path(); }

 private:
  void write_summary(const ProtobufMessage& value, const EventTime& when);
  void write_record(const ProtobufMessage& event);

  OutputFile file_;
};

}  // namespace lockstep
