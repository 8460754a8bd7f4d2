/* Debian 12's lldpad can speak CEE again: an LD_PRELOAD library, for tests only.
 *
 * lldpad 1.1+git20221028 clears the whole of a port's CEE state each time that it builds a frame with DCB on: the name of the
 * port, that CEE is active, the list links, and not only the ten TLVs that it has just freed. From its first frame on, the
 * port is in no mode at all: no CEE TLV is ever sent, `dcbtool go` answers "not applicable in IEEE-DCBX modes", and lldpad
 * ends with a segmentation fault. Upstream repaired it in August 2023 (intel/openlldp 03cb011, "dcbx: prevent null
 * dereference in dcbx_free_data"); Debian 12 has the version from before. This library puts instructions that clear the ten pointers alone in place of those that clear all,
 * in memory, and only where the running program is exactly that build. Everything else is Debian's lldpad as it is.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __x86_64__

/* GNU build id of /usr/sbin/lldpad in lldpad_1.1+git20221028.aa18720-1_amd64.deb */
static const uint8_t build_id[20] = {0x5e, 0x3e, 0x44, 0xbe, 0x47, 0x1a, 0x21, 0x34, 0xb9, 0x55,
				     0x18, 0xa0, 0x39, 0x54, 0x38, 0xe8, 0xeb, 0x93, 0x73, 0x75};

#define PLACE 0x1d500 /* what clears, and how many octets of it */
#define SIZE 49

/* rbx: the port's state, whose octets 0x20 to 0x6f are the ten pointers; rbp: second argument of the call that follows */
static const uint8_t clear_pointers[] = {
	0x48, 0x8d, 0x7b, 0x20,	      /* lea rdi, [rbx + 0x20] */
	0x31, 0xc0,		      /* xor eax, eax */
	0xb9, 0x0a, 0x00, 0x00, 0x00, /* mov ecx, 10 */
	0x48, 0x89, 0xee,	      /* mov rsi, rbp */
	0xf3, 0x48, 0xab,	      /* rep stosq */
};

static int visit(struct dl_phdr_info *object, size_t size, void *to)
{
	uintptr_t *base = to;

	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) { /* of the first object, which is the program itself */
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		const char *note = (const char *)(object->dlpi_addr + segment->p_vaddr), *end = note + segment->p_memsz;

		while (segment->p_type == PT_NOTE && end - note >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
			const ElfW(Nhdr) *head = (const void *)note;
			const char *name = note + sizeof(*head), *text = name + ((head->n_namesz + 3u) & ~3u);

			if (head->n_type == NT_GNU_BUILD_ID && head->n_descsz == sizeof(build_id) &&
			    memcmp(text, build_id, sizeof(build_id)) == 0)
				*base = object->dlpi_addr;
			note = text + ((head->n_descsz + 3u) & ~3u);
		}
	}
	return 1;
}

__attribute__((constructor)) static void repair(void)
{
	uintptr_t base = 0, page;
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE), length;

	dl_iterate_phdr(visit, &base);
	if (!base)
		return;
	page = (base + PLACE) & ~(page_size - 1);
	length = base + PLACE + SIZE - page;
	if (mprotect((void *)page, length, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
		perror("ceefix: mprotect");
		_exit(127);
	}
	memset((void *)(base + PLACE), 0x90, SIZE); /* nop */
	memcpy((void *)(base + PLACE), clear_pointers, sizeof(clear_pointers));
	if (mprotect((void *)page, length, PROT_READ | PROT_EXEC) != 0) {
		perror("ceefix: mprotect");
		_exit(127);
	}
}

#endif
