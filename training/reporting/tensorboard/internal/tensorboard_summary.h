#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/training/reporting/tensorboard/hyperparameters.h"
#include "lockstep/training/reporting/tensorboard/internal/protobuf_message.h"
#include "lockstep/training/reporting/tensorboard/value_histogram.h"

namespace lockstep {

/// Return summary values (the message Summary.Value in TensorBoard's summary.proto) in the form that each of
/// TensorBoard's plugins reads.
ProtobufMessage scalar_summary(const std::string& tag, double value);
ProtobufMessage histogram_summary(const std::string& tag, const ValueHistogram& histogram);
/// Throws InvalidArgument unless `png` begins like a PNG file.
ProtobufMessage image_summary(const std::string& tag, std::span<const uint8_t> png);
ProtobufMessage text_summary(const std::string& tag, const std::string& text);

/// Return the data of the HPARAMS tab (api.proto and plugin_data.proto of its plugin): the hyperparameters
/// and metrics that runs have, this run's values, and how it ended. Times are seconds since 1970.
ProtobufMessage experiment_summary(const HyperparameterSession& session, double time);
ProtobufMessage session_start_summary(const HyperparameterSession& session, double time);
ProtobufMessage session_end_summary(SessionStatus status, double time);

}  // namespace lockstep
