#include "lockstep/runtime/cluster/tf_config.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

/// Two workers and the given task.
std::string two_workers(const std::string& task) {
  return R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": )" + task + "}";
}

/// The given cluster, with this process as worker 0.
std::string first_worker_of(const std::string& cluster) {
  return R"({"cluster": )" + cluster + R"(, "task": {"type": "worker", "index": 0}})";
}

TEST(TfConfig, ReadsClusterAndTask) {
  const TfConfig config = parse_tf_config(R"({
    "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["[::1]:4"], "evaluator": ["e:1"]},
    "task": {"type": "worker", "index": 1}})");
  const ClusterSpec expected({{"chief", {{0, {.host = "a", .port = 1}}}},
                              {"worker", {{0, {.host = "b", .port = 1}}, {1, {.host = "c", .port = 1}}}},
                              {"ps", {{0, {.host = "::1", .port = 4}}}},
                              {"evaluator", {{0, {.host = "e", .port = 1}}}}});
  EXPECT_EQ(config.cluster, expected);
  EXPECT_EQ(config.task_type, "worker");
  EXPECT_EQ(config.task_id, 1);
}

TEST(TfConfig, TakesASparseJobAndAnIndexInDigits) {
  const TfConfig config = parse_tf_config(
      R"({"cluster": {"worker": {"7": "b:1", "2": "a:1"}}, "task": {"type": "worker", "index": "7"}})");
  EXPECT_EQ(config.cluster.task_indices("worker"), (std::vector<int>{2, 7}));
  EXPECT_EQ(config.cluster.task_address("worker", 7).host, "b");
  EXPECT_EQ(config.task_id, 7);
  EXPECT_EQ(parse_tf_config(two_workers(R"({"type": "worker", "index": "1"})")).task_id, 1);
}

TEST(TfConfig, TakesASingleProcess) {
  for (const std::string text :
       {"{}", R"({"cluster": {}})", R"({"task": {"type": "worker", "index": 0}})",
        R"({"cluster": {}, "task": {"type": "worker", "index": "0"}, "environment": "cloud"})"}) {
    const TfConfig config = parse_tf_config(text);
    EXPECT_TRUE(config.cluster.empty()) << text;
    EXPECT_EQ(config.task_type, "worker") << text;
    EXPECT_EQ(config.task_id, 0) << text;
  }
}

TEST(TfConfig, TakesAnEvaluatorThatTheClusterDoesNotList) {
  const TfConfig config = parse_tf_config(two_workers(R"({"type": "evaluator", "index": 3})"));
  EXPECT_EQ(config.task_type, "evaluator");
  EXPECT_EQ(config.task_id, 3);
  EXPECT_EQ(config.cluster.num_training_tasks(), 2);
}

TEST(TfConfig, IgnoresFurtherKeysAndEmptyJobs) {
  const TfConfig config = parse_tf_config(
      R"({"cluster": {"worker": ["a:1"], "ps": []}, "task": {"type": "worker", "index": 0, "trial": "1"},
          "environment": "cloud", "rpc_layer": "grpc", "job": {"scale": [1.5, null, {"x": true}]}})");
  EXPECT_EQ(config.cluster.num_tasks("worker"), 1);
  EXPECT_FALSE(config.cluster.has_job("ps"));
}

TEST(TfConfig, TakesLimitsExactly) {
  const auto nested = [](int depth) {
    return R"({"x": )" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(parse_tf_config(nested(16)).cluster.empty());
  EXPECT_THROW(parse_tf_config(nested(17)), InvalidArgument);
  const auto padded = [](size_t size) { return "{}" + std::string(size - 2, ' '); };
  EXPECT_TRUE(parse_tf_config(padded(size_t{1} << 20)).cluster.empty());
  EXPECT_THROW(parse_tf_config(padded((size_t{1} << 20) + 1)), InvalidArgument);
}

/// A refused text and its message after "[TF_CONFIG] expected ".
struct RefusedTfConfig {
  std::string name;
  std::string text;
  std::string message;
};

void PrintTo(const RefusedTfConfig& refused, std::ostream* out) {
  *out << refused.name;
}

class RefusedTfConfigTest : public ::testing::TestWithParam<RefusedTfConfig> {};

TEST_P(RefusedTfConfigTest, NamesPathAndValue) {
  EXPECT_EQ(message_of<InvalidArgument>([] { parse_tf_config(GetParam().text); }),
            "[TF_CONFIG] expected " + GetParam().message);
}

const std::string kBadJsonKey = "syntax error while parsing object key - ";
const std::string kBadJsonValue = "syntax error while parsing value - ";
const std::string kNoSuchIndex = "task.index to be an index of cluster.worker, 0 to 1, but got ";
const std::string kNoSuchType = "task.type to be chief, worker, evaluator or ps, but got ";
const std::string kSecondWorker = "cluster.worker[1] to be ";
const std::string kNoSuchJob = "a job named chief, worker, evaluator or ps, but got ";
const std::string kLongWord(200, 'x');

INSTANTIATE_TEST_SUITE_P(
    Text, RefusedTfConfigTest,
    ::testing::Values(
        RefusedTfConfig{"Empty", "", "JSON, but got an empty string"},
        RefusedTfConfig{"Blank", " \n\t", "JSON, but got an empty string"},
        RefusedTfConfig{"Word", "{\n  cluster: 1}",
                        "JSON, but got '  c' up to line 2, column 3: " + kBadJsonKey + "invalid literal"},
        RefusedTfConfig{"Unfinished", R"({"cluster": {)",
                        R"(JSON, but got '{"cluster": {' up to line 1, column 14: )" + kBadJsonKey +
                            "unexpected end of input"},
        RefusedTfConfig{
            "UnfinishedLine", "{\"cluster\":\n",
            "JSON, but got '' up to line 2, column 1: " + kBadJsonValue + "unexpected end of input"},
        RefusedTfConfig{"SingleQuotes", "{'cluster': {}}",
                        "JSON, but got '{'' up to line 1, column 2: " + kBadJsonKey + "invalid literal"},
        RefusedTfConfig{"TrailingText", "{} x",
                        "JSON, but got '{} x' up to line 1, column 4: " + kBadJsonValue + "invalid literal"},
        RefusedTfConfig{"TwoDocuments", "{}{}",
                        "JSON, but got '{}{' up to line 1, column 3: " + kBadJsonValue + "unexpected '{'"},
        RefusedTfConfig{
            "TrailingComma", R"({"cluster": {},})",
            R"(JSON, but got '{"cluster": {},}' up to line 1, column 16: )" + kBadJsonKey + "unexpected '}'"},
        RefusedTfConfig{"Comment", "{} // none",
                        "JSON, but got '{} /' up to line 1, column 4: " + kBadJsonValue + "invalid literal"},
        RefusedTfConfig{"NotUtf8", "{\"\xFF\": 1}",
                        R"(JSON, but got '{"\xff' up to line 1, column 3: )" + kBadJsonKey +
                            "invalid string: ill-formed UTF-8 byte"},
        RefusedTfConfig{
            "NumberBeyondDoubles", R"({"x": 1e999})",
            R"(JSON, but got '{"x": 1e999' up to line 1, column 11: number overflow parsing '1e999')"},
        RefusedTfConfig{"Array", R"(["cluster"])", R"(the value to be a JSON object, but got ["cluster"])"},
        RefusedTfConfig{"String", R"("cluster")", "the value to be a JSON object, but got 'cluster'"},
        RefusedTfConfig{"Null", "null", "the value to be a JSON object, but got null"},
        RefusedTfConfig{"TooLong", "{}" + std::string(1 << 20, ' '),
                        "at most 1048576 bytes, but got 1048578"},
        RefusedTfConfig{
            "TooDeep", R"({"x": {"y": )" + std::string(100000, '['),
            "x.y[0][0][0][0][0][0][0][0][0][0][0][0][0][0] to be a plain value at this depth (16), but "
            "got an array"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Task, RefusedTfConfigTest,
    ::testing::Values(
        RefusedTfConfig{"Missing", R"({"cluster": {"worker": ["a:1"]}})",
                        "task to be an object with type and index, but got nothing"},
        RefusedTfConfig{"Null", two_workers("null"),
                        "task to be an object with type and index, but got null"},
        RefusedTfConfig{"Array", two_workers(R"(["worker", 0])"),
                        R"(task to be an object with type and index, but got ["worker",0])"},
        RefusedTfConfig{"IndexMissing", two_workers(R"({"type": "worker"})"), kNoSuchIndex + "nothing"},
        RefusedTfConfig{"IndexNegative", two_workers(R"({"type": "worker", "index": -1})"),
                        kNoSuchIndex + "-1"},
        RefusedTfConfig{"IndexFraction", two_workers(R"({"type": "worker", "index": 0.9})"),
                        kNoSuchIndex + "0.9"},
        RefusedTfConfig{"IndexWholeFraction", two_workers(R"({"type": "worker", "index": 1.0})"),
                        kNoSuchIndex + "1.0"},
        RefusedTfConfig{"IndexWord", two_workers(R"({"type": "worker", "index": "x"})"),
                        kNoSuchIndex + "'x'"},
        RefusedTfConfig{"IndexBeyond", two_workers(R"({"type": "worker", "index": 5})"), kNoSuchIndex + "5"},
        RefusedTfConfig{"IndexBeyondInDigits", two_workers(R"({"type": "worker", "index": "2"})"),
                        kNoSuchIndex + "'2'"},
        RefusedTfConfig{"IndexEmpty", two_workers(R"({"type": "worker", "index": ""})"), kNoSuchIndex + "''"},
        RefusedTfConfig{"IndexSigned", two_workers(R"({"type": "worker", "index": "+1"})"),
                        kNoSuchIndex + "'+1'"},
        RefusedTfConfig{"IndexWraps32Bits", two_workers(R"({"type": "worker", "index": 4294967296})"),
                        kNoSuchIndex + "4294967296"},
        RefusedTfConfig{"IndexWraps64Bits",
                        two_workers(R"({"type": "worker", "index": "18446744073709551616"})"),
                        kNoSuchIndex + "'18446744073709551616'"},
        RefusedTfConfig{"IndexTrue", two_workers(R"({"type": "worker", "index": true})"),
                        kNoSuchIndex + "true"},
        RefusedTfConfig{"IndexNull", two_workers(R"({"type": "worker", "index": null})"),
                        kNoSuchIndex + "null"},
        RefusedTfConfig{"IndexList", two_workers(R"({"type": "worker", "index": [0]})"),
                        kNoSuchIndex + "[0]"},
        RefusedTfConfig{"IndexTwice", two_workers(R"({"type": "worker", "index": 0, "index": 1})"),
                        "task.index to be given once, but got the key 'index' twice"},
        RefusedTfConfig{
            "IndexBetweenSparseOnes",
            R"({"cluster": {"worker": {"0": "a:1", "2": "b:1"}}, "task": {"type": "worker", "index": 1}})",
            "task.index to be an index of cluster.worker, one of 0, 2, but got 1"},
        RefusedTfConfig{"IndexWithoutCluster", R"({"task": {"type": "worker", "index": 1}})",
                        "task.index to be 0 without a cluster, but got 1"},
        RefusedTfConfig{"IndexOfListedEvaluator",
                        R"({"cluster": {"worker": ["a:1"], "evaluator": ["b:1"]},
                            "task": {"type": "evaluator", "index": 1}})",
                        "task.index to be an index of cluster.evaluator, 0, but got 1"},
        RefusedTfConfig{"IndexOfAbsentEvaluator", two_workers(R"({"type": "evaluator", "index": -1})"),
                        "task.index to be a whole number of 0 or more, but got -1"},
        RefusedTfConfig{"TypeMissing", two_workers(R"({"index": 0})"), kNoSuchType + "nothing"},
        RefusedTfConfig{"TypeUnknown", two_workers(R"({"type": "boss", "index": 0})"),
                        kNoSuchType + "'boss'"},
        RefusedTfConfig{"TypeOfOldName", two_workers(R"({"type": "master", "index": 0})"),
                        kNoSuchType + "'master'"},
        RefusedTfConfig{"TypeInCapitals", two_workers(R"({"type": "Worker", "index": 0})"),
                        kNoSuchType + "'Worker'"},
        RefusedTfConfig{"TypeNumber", two_workers(R"({"type": 0, "index": 0})"), kNoSuchType + "0"},
        RefusedTfConfig{"TypeLong", two_workers(R"({"type": ")" + kLongWord + R"(", "index": 0})"),
                        kNoSuchType + "'" + kLongWord.substr(0, 77) + "...'"},
        RefusedTfConfig{"TypeNotInCluster", two_workers(R"({"type": "chief", "index": 0})"),
                        "task.type to be a job of the cluster, or evaluator, but got 'chief'"},
        RefusedTfConfig{"PsNotInCluster", two_workers(R"({"type": "ps", "index": 0})"),
                        "task.type to be a job of the cluster, or evaluator, but got 'ps'"},
        RefusedTfConfig{"PsWithoutCluster", R"({"task": {"type": "ps", "index": 0}})",
                        "task.type to be chief, worker or evaluator without a cluster, but got 'ps'"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Cluster, RefusedTfConfigTest,
    ::testing::Values(
        RefusedTfConfig{"Null", first_worker_of("null"), "cluster to be an object of jobs, but got null"},
        RefusedTfConfig{"List", first_worker_of(R"(["a:1"])"),
                        R"(cluster to be an object of jobs, but got ["a:1"])"},
        RefusedTfConfig{"Twice", R"({"cluster": {}, "cluster": {"worker": ["a:1"]}})",
                        "cluster to be given once, but got the key 'cluster' twice"},
        RefusedTfConfig{"TwiceByEscape", R"({"cluster": {}, "cl\u0075ster": {"worker": ["a:1"]}})",
                        "cluster to be given once, but got the key 'cluster' twice"},
        RefusedTfConfig{"JobTwice", first_worker_of(R"({"worker": ["a:1"], "worker": ["b:1"]})"),
                        "cluster.worker to be given once, but got the key 'worker' twice"},
        RefusedTfConfig{"JobUnknown", first_worker_of(R"({"worker": ["a:1"], "boss": ["b:1"]})"),
                        "cluster.boss to be " + kNoSuchJob + "'boss'"},
        RefusedTfConfig{"JobOfOldName", first_worker_of(R"({"worker": ["a:1"], "master": ["b:1"]})"),
                        "cluster.master to be " + kNoSuchJob + "'master'"},
        RefusedTfConfig{"JobNamedStrangely", first_worker_of(R"({"wor\u00e9 .": ["a:1"]})"),
                        R"(cluster["wor\xc3\xa9 ."] to be )" + kNoSuchJob + R"('wor\xc3\xa9 .')"},
        RefusedTfConfig{
            "JobNumber", first_worker_of(R"({"worker": 2})"),
            "cluster.worker to be a list of host:port, or an object of host:port by task index, but got 2"},
        RefusedTfConfig{
            "JobString", first_worker_of(R"({"worker": "a:1"})"),
            "cluster.worker to be a list of host:port, or an object of host:port by task index, but got "
            "'a:1'"},
        RefusedTfConfig{"TwoChiefs", first_worker_of(R"({"worker": ["a:1"], "chief": ["b:1", "c:1"]})"),
                        R"(cluster.chief to be one task at most, with index 0, but got ["b:1","c:1"])"},
        RefusedTfConfig{"ChiefNotFirst", first_worker_of(R"({"worker": ["a:1"], "chief": {"1": "b:1"}})"),
                        R"(cluster.chief to be one task at most, with index 0, but got {"1":"b:1"})"},
        RefusedTfConfig{"NoWorkers", R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})",
                        R"(cluster to be an object with a chief or a worker, but got {"ps":["a:1"]})"},
        RefusedTfConfig{"EmptyWorkers", first_worker_of(R"({"worker": []})"),
                        R"(cluster to be an object with a chief or a worker, but got {"worker":[]})"},
        RefusedTfConfig{"EvaluatorsOnly",
                        R"({"cluster": {"evaluator": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})",
                        R"(cluster to be an object with a chief or a worker, but got {"evaluator":["a:1"]})"},
        RefusedTfConfig{"AddressTwice", first_worker_of(R"({"worker": ["a:1", "a:1"]})"),
                        kSecondWorker + "an address of its own, but got 'a:1' as in cluster.worker[0]"},
        RefusedTfConfig{"AddressTwiceInOtherCase", first_worker_of(R"({"worker": ["a.b:1", "A.b:01"]})"),
                        kSecondWorker + "an address of its own, but got 'A.b:01' as in cluster.worker[0]"},
        RefusedTfConfig{"AddressTwiceInOtherIpv6Text",
                        first_worker_of(R"({"worker": ["[::1]:1", "[0::1]:1"]})"),
                        kSecondWorker + "an address of its own, but got '[0::1]:1' as in cluster.worker[0]"},
        RefusedTfConfig{"AddressOfTwoJobs", first_worker_of(R"({"chief": ["a:1"], "worker": {"0": "a:1"}})"),
                        "cluster.worker.0 to be an address of its own, but got 'a:1' as in cluster.chief[0]"},
        RefusedTfConfig{"AddressWithoutPort", first_worker_of(R"({"worker": ["a:1", "b"]})"),
                        kSecondWorker + "host:port with a port, but got 'b'"},
        RefusedTfConfig{"AddressWithLargePort", first_worker_of(R"({"worker": ["a:1", "b:99999"]})"),
                        kSecondWorker + "host:port with a port from 1 to 65535, but got 'b:99999'"},
        RefusedTfConfig{"AddressWithPortZero", first_worker_of(R"({"worker": ["a:1", "b:0"]})"),
                        kSecondWorker + "host:port with a port from 1 to 65535, but got 'b:0'"},
        RefusedTfConfig{"AddressWithoutHost", first_worker_of(R"({"worker": ["a:1", ":2222"]})"),
                        kSecondWorker + "host:port with a name or an address as host, but got ':2222'"},
        RefusedTfConfig{"AddressWithScheme", first_worker_of(R"({"worker": ["a:1", "grpc://b:1"]})"),
                        kSecondWorker + "host:port with a name or an address as host, but got 'grpc://b:1'"},
        RefusedTfConfig{"AddressWithZeroByte", first_worker_of(R"({"worker": ["a:1", "b\u0000:1"]})"),
                        kSecondWorker + R"(host:port with a name or an address as host, but got 'b\x00:1')"},
        RefusedTfConfig{"AddressNumber", first_worker_of(R"({"worker": ["a:1", 2222]})"),
                        kSecondWorker + "a string host:port, but got 2222"},
        RefusedTfConfig{"AddressNull", first_worker_of(R"({"worker": ["a:1", null]})"),
                        kSecondWorker + "a string host:port, but got null"},
        RefusedTfConfig{"SparseIndexWord", first_worker_of(R"({"worker": {"x": "a:1"}})"),
                        "cluster.worker.x to be named by the task's index, 0 or more, but got 'x'"},
        RefusedTfConfig{"SparseIndexNegative", first_worker_of(R"({"worker": {"-1": "a:1"}})"),
                        "cluster.worker.-1 to be named by the task's index, 0 or more, but got '-1'"},
        RefusedTfConfig{"SparseIndexTwice", first_worker_of(R"({"worker": {"0": "a:1", "00": "b:1"}})"),
                        "cluster.worker.00 to be the only one with index 0, but got '00' for a second time"},
        RefusedTfConfig{"LongKeyTwice", "{\"" + kLongWord + "\": 1, \"" + kLongWord + "\": 2}",
                        "[\"" + kLongWord.substr(0, 77) + "...\"] to be given once, but got the key '" +
                            kLongWord.substr(0, 77) + "...' twice"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep
