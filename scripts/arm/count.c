// A plugin of qemu's user-mode emulator: how often each instruction of functions named like `match` runs. At exit it
// logs "COUNT address count function". The functions of qemu that it calls are declared here, since their header is
// seldom installed. PLUGIN_VERSION is the version of the interface: 1 up to qemu 8.1, then 2.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb* block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn* instruction);
const char* qemu_plugin_insn_symbol(const struct qemu_plugin_insn* instruction);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*callback)(uint64_t id, struct qemu_plugin_tb* block));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn* instruction,
                                            void (*callback)(unsigned cpu, void* data), int flags, void* data);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*callback)(uint64_t id, void* data), void* data);
void qemu_plugin_outs(const char* text);

EXPORTED int qemu_plugin_version = PLUGIN_VERSION;

// One translation of an instruction; an address may have several.
struct counter {
  uint64_t address, count;
  const char* function;
  struct counter* next;
};

static struct counter* counters;
static const char* match = "";

static void count(unsigned cpu, void* data) {
  (void)cpu;
  ((struct counter*)data)->count++;
}

static void translated(uint64_t id, struct qemu_plugin_tb* block) {
  (void)id;
  for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
    struct qemu_plugin_insn* instruction = qemu_plugin_tb_get_insn(block, i);
    const char* function = qemu_plugin_insn_symbol(instruction);
    if (!function || !strstr(function, match)) continue;
    struct counter* counter = calloc(1, sizeof *counter);
    if (!counter) abort();
    *counter = (struct counter){qemu_plugin_insn_vaddr(instruction), 0, function, counters};
    counters = counter;
    qemu_plugin_register_vcpu_insn_exec_cb(instruction, count, 0, counter);
  }
}

static void report(uint64_t id, void* data) {
  (void)id;
  (void)data;
  char line[512];
  for (const struct counter* c = counters; c; c = c->next) {
    snprintf(line, sizeof line, "COUNT %" PRIx64 " %" PRIu64 " %s\n", c->address, c->count, c->function);
    qemu_plugin_outs(line);
  }
}

EXPORTED int qemu_plugin_install(uint64_t id, const void* info, int count, char** words) {
  (void)info;
  for (int i = 0; i < count; i++)
    if (strncmp(words[i], "match=", 6) == 0) match = strdup(words[i] + 6);
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, report, NULL);
  return 0;
}
