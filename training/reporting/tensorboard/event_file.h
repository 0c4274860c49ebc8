#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/training/reporting/tensorboard/hyperparameters.h"
#include "lockstep/training/reporting/tensorboard/value_histogram.h"

namespace lockstep {

class ProtobufMessage;

/// Returns the seconds since 1970, with fractions.
double seconds_since_1970();

/// Position of a value on TensorBoard's axes.
struct EventTime {
  int64_t step = 0;
  double wall_time = seconds_since_1970();
};

/// Writes a new event file for TensorBoard: TFRecord frames with one Event each, in the form that
/// TensorBoard's current plugins read. `tensorboard --logdir <folder>` can read it while it grows, and shows
/// each folder with event files as a run.
///
/// When a call returns, its event has been handed to the operating system, so a killed process loses none. If
/// the disk is full, a call throws std::system_error naming the file, which stays readable; later calls may
/// succeed. Not thread-safe.
///
/// Example:
///
///     EventFileWriter writer("tb/train");
///     writer.scalar("loss", 0.5, {.step = 1});
class EventFileWriter {
 public:
  /// Creates `folder` and its parents if missing. Throws std::system_error naming the folder or file that it
  /// could not create.
  explicit EventFileWriter(const std::string& folder);

  /// Writes a scalar, which TensorBoard keeps as float32.
  void scalar(const std::string& tag, double value, const EventTime& when);
  /// Writes a histogram. TensorBoard's own writers make 30 bins.
  void histogram(const std::string& tag, const ValueHistogram& histogram, const EventTime& when);
  /// Writes an image. Throws InvalidArgument unless `png` begins as a PNG file does.
  void image(const std::string& tag, std::span<const uint8_t> png, const EventTime& when);
  /// Writes a text, which TensorBoard shows as Markdown.
  void text(const std::string& tag, const std::string& text, const EventTime& when);

  /// Adds a row for the run to the HPARAMS tab, whose metric columns show the last value of each scalar. Call
  /// it once per file.
  void start_session(const HyperparameterSession& session, const EventTime& when = {});
  /// Writes to that row how the run ended.
  void end_session(SessionStatus status, const EventTime& when = {});

  const std::string& path() const { return file_.path(); }

 private:
  void write_summary(const ProtobufMessage& value, const EventTime& when);
  void write_record(const ProtobufMessage& event);

  OutputFile file_;
};

}  // namespace lockstep
