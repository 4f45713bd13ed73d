/* What region.c uses of QEMU's TCG plugin interface, version 1 (QEMU 4.2 to 8.x): declarations of our own, because
 * distributions ship qemu-plugin.h late or not at all. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS = 0 };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_RW = 3 };

typedef void (*qemu_plugin_translated)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*qemu_plugin_executed)(unsigned vcpu, void *userdata);
typedef void (*qemu_plugin_accessed)(unsigned vcpu, qemu_plugin_meminfo_t, uint64_t address, void *userdata);
typedef void (*qemu_plugin_ended)(qemu_plugin_id_t, void *userdata);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, qemu_plugin_translated);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, qemu_plugin_executed,
                                            enum qemu_plugin_cb_flags, void *userdata);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, qemu_plugin_accessed, enum qemu_plugin_cb_flags,
                                      enum qemu_plugin_mem_rw, void *userdata);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, qemu_plugin_ended, void *userdata);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
